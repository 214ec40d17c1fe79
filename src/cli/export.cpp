// slipring export: a model as programs and ONNX files.
#include "engine/export.h"

#include <fmt/format.h>
#include <memory>

#include <slipring/error.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/say.h"

namespace slipring::cli {
namespace {

struct ExportFlags {
  ModelFlags model;
  std::string output;
  std::string kv = "f32";
  std::string quantise;
  std::string mode = "eager";
  std::string drafter;
  bool embeddings = false;
  bool print = false;
};

void export_command(const ExportFlags& flags) {
  ExportOptions options;
  options.kv_dtype = dtype_from_name(flags.kv).value();
  options.embeddings = flags.embeddings;
  options.drafter = flags.drafter;
  options.threads = flags.model.threads;
  if (flags.quantise == "q8") options.quantise = DType::Q8_0;
  if (flags.quantise == "q4") options.quantise = DType::Q4_0;
  if (flags.mode == "graph") {
    if (!options.quantise) {
      throw Error(ErrorCode::invalid_argument,
                  {.where = "--mode graph", .expected = "--quantize q8 or q4 with it", .got = "none", .advice = {}});
    }
    options.mode = QuantiseMode::graph;
  }
  if (flags.output.empty() && !flags.print) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "export", .expected = "-o DIR, or --print", .got = "neither", .advice = {}});
  }
  const auto model = flags.model.load();
  for (const std::string& notice : model->spec().notices) say("slipring: note: {}\n", notice);
  if (flags.print) {
    for (const Program& program : make_programs(*model, options)) fmt::print("{}\n", to_text(program));
    return;
  }
  for (const ExportedFile& file : export_model(*model, options, flags.output)) {
    say("{:>10}  {}\n", human_bytes(file.bytes), (std::filesystem::path(flags.output) / file.name).string());
  }
}

}  // namespace

void add_export(CLI::App& app) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* command = app.add_subcommand("export", "Write a model as programs and ONNX files that other runtimes run");
  flags->model.add(*command);
  auto* output =
      command->add_option("-o,--output", flags->output, "Folder to write the bundle to; made if it is not there")
          ->type_name("DIR");
  add_kv(*command, flags->kv, "the states");
  command->add_flag("--embeddings", flags->embeddings,
                    "Hidden states in place of token ids, full caches with the window as a mask: no ring");
  command->add_option("--quantize", flags->quantise, "Weights of linear maps in blocks: q8 or q4")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"q8", "q4"}));
  command
      ->add_option(
          "--mode", flags->mode,
          "eager: quantise the weights, trace main and prefill each; graph: quantise a traced main and trim it "
          "to prefill, refused where a ring would be written before it is read")
      ->type_name("MODE")
      ->capture_default_str()
      ->check(CLI::IsMember({"eager", "graph"}));
  command
      ->add_option("-d,--drafter", flags->drafter,
                   "DFlash drafter: adds its programs inject and draft, and the hidden states that they read")
      ->type_name("PATH");
  command->add_flag("--print", flags->print, "Print the programs instead of writing anything")->excludes(output);
  command->footer("Example: slipring export -m model.gguf -o bundle, then slipring run --program bundle -p \"Once\"");
  command->callback([flags] { export_command(*flags); });
}

}  // namespace slipring::cli
