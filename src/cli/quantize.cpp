// slipring quantize: a model file with smaller tensors.
#include <fmt/format.h>
#include <memory>
#include <string>

#include <slipring/error.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/say.h"
#include "formats/quantise_model.h"

namespace slipring::cli {
namespace {

struct QuantizeFlags {
  std::string input;
  std::string output;
  std::string type;
  int threads = 0;
};

std::string type_names() {
  std::string names;
  for (const QuantisationMix& mix : quantisation_mixes()) names += (names.empty() ? "" : ", ") + std::string(mix.name);
  return names + "; Q4_K and Q5_K mean their _M mix";
}

void quantize(const QuantizeFlags& flags) {
  catch_interrupts();
  QuantiseOptions options;
  options.threads = flags.threads;
  ProgressLine progress("quantising");
  options.progress = [&](int64_t done, int64_t total, std::string_view) {
    if (interrupted()) {
      throw Error(
          ErrorCode::cancelled,
          {.where = "quantize", .expected = {}, .got = "stopped on request; nothing was written", .advice = {}});
    }
    progress.show(done, total);
  };
  const QuantiseReport report = quantise_model(flags.input, flags.output, flags.type, options);
  progress.clear();
  for (const TensorChoice& choice : report.substitutions()) {
    say("{}: {} instead of {}, which its rows do not fit\n", choice.name, to_string(choice.to),
        to_string(choice.wanted));
  }
  int64_t again = 0;
  for (const TensorChoice& choice : report.tensors) {
    again += static_cast<int64_t>(is_quantised(choice.from) && choice.from != choice.to);
  }
  if (again > 0) {
    say("{} tensors were quantised before; what that lost does not come back\n", again);
  }
  say("{} -> {}: {} -> {}\n", flags.input, flags.output, human_bytes(report.bytes_in), human_bytes(report.bytes_out));
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto flags = std::make_shared<QuantizeFlags>();
  CLI::App* command = app.add_subcommand("quantize", "Write a GGUF model with smaller tensors");
  command->add_option("input", flags->input, "GGUF file to read")->required();
  command->add_option("output", flags->output, "GGUF file to write; appears only when it is whole")->required();
  command->add_option("type", flags->type, type_names())->required();
  command->add_option("-t,--threads", flags->threads, "Threads; 0: all cores")->check(whole_number(0, 256));
  command->callback([flags] { quantize(*flags); });
}

}  // namespace slipring::cli
