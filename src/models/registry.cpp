// Which file runs which architecture. Names are those that the model files use.
#include <algorithm>
#include <array>
#include <fmt/format.h>

#include <slipring/error.h>

#include "models/families.h"

namespace slipring {
namespace {

struct Entry {
  std::string_view architecture;
  DecoderFactory load;
};

constexpr std::array kFamilies = {
    Entry{"gemma3", load_gemma3},
    Entry{"gemma3_text", load_gemma3},
    Entry{"llama", load_llama},
    Entry{"mistral", load_llama},
    Entry{"muse-glimmer", load_muse_glimmer},
    Entry{"muse_glimmer", load_muse_glimmer},
    Entry{"muse_glimmer_text", load_muse_glimmer},
};

}  // namespace

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Entry& entry : kFamilies) names.emplace_back(entry.architecture);
  std::sort(names.begin(), names.end());
  return names;
}

std::shared_ptr<const Decoder> load_decoder(const ModelFiles& files, ThreadPool& pool) {
  for (const Entry& entry : kFamilies) {
    if (entry.architecture == files.architecture()) return entry.load(files, pool);
  }
  throw Error(ErrorCode::unsupported, {.where = files.path().string(),
                                       .expected = fmt::format("one of: {}", fmt::join(known_architectures(), ", ")),
                                       .got = "architecture \"" + files.architecture() + "\"",
                                       .advice = {}});
}

}  // namespace slipring
