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
  const Family* family;
};

constexpr std::array kFamilies = {
    Entry{"cohere2", &kCohere2},
    Entry{"gemma2", &kGemma2},
    Entry{"gemma3", &kGemma3},
    Entry{"gemma3_text", &kGemma3},
    Entry{"gpt-oss", &kGptOss},
    Entry{"gpt_oss", &kGptOss},
    Entry{"llama", &kLlama},
    Entry{"mistral", &kLlama},
    Entry{"muse-glimmer", &kMuseGlimmer},
    Entry{"muse_glimmer", &kMuseGlimmer},
    Entry{"muse_glimmer_text", &kMuseGlimmer},
    Entry{"olmo2", &kOlmo3},
    Entry{"olmo3", &kOlmo3},
    Entry{"phi3", &kPhi3},
};

}  // namespace

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Entry& entry : kFamilies) names.emplace_back(entry.architecture);
  std::sort(names.begin(), names.end());
  return names;
}

static const Family& family_of(const ModelFiles& files) {
  for (const Entry& entry : kFamilies) {
    if (entry.architecture == files.architecture()) return *entry.family;
  }
  throw Error(ErrorCode::unsupported, {.where = files.path().string(),
                                       .expected = fmt::format("one of: {}", fmt::join(known_architectures(), ", ")),
                                       .got = "architecture \"" + files.architecture() + "\"",
                                       .advice = {}});
}

ModelSpec read_model_spec(const ModelFiles& files, int64_t context) {
  return family_of(files).read_spec(files, context);
}

std::shared_ptr<const Decoder> load_decoder(const ModelFiles& files, ThreadPool& pool, int64_t context) {
  return family_of(files).load(files, pool, context);
}

}  // namespace slipring
