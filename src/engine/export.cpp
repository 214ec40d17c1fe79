#include "engine/export.h"

#include <fmt/format.h>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include <slipring/error.h>

#include "engine/bundle.h"
#include "formats/gguf_writer.h"
#include "formats/mapped_file.h"
#include "formats/output_file.h"
#include "models/trace_decoder.h"
#include "program/onnx_export.h"
#include "program/quantise.h"
#include "program/weights_file.h"

namespace slipring {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Whatever a folder's tokenizer may need.
constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json",         "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "generation_config.json", "chat_template.jinja",   "config.json"};

json dims_json(const Program& program, ValueId value) {
  json dims = json::array();
  for (const OnnxGraph::Dim& dim : onnx_dims(program, program.type(value))) {
    if (dim.name.empty()) {
      dims.push_back(dim.value);
    } else {
      dims.push_back(dim.name);
    }
  }
  return dims;
}

json program_json(const Program& program) {
  const Obligations must = obligations(program);
  json entry{{"name", program.name},
             {"onnx", program.name + ".onnx"},
             {"program", program.name + ".program"},
             {"constraints", {{"single_token", must.single_token}, {"no_wrap", must.no_wrap}, {"text", must.text()}}},
             {"inputs", json::array()},
             {"outputs", json::array()},
             {"states", json::array()}};
  for (const Node& node : program.nodes) {
    if (node.op == OpKind::token_ids) {
      entry["inputs"].push_back(
          {{"name", "token_ids"}, {"dtype", "I64"}, {"dims", json::array({dims_json(program, node.output)[0]})}});
    } else if (node.op == OpKind::input_embeddings) {
      entry["inputs"].push_back(
          {{"name", "inputs_embeds"}, {"dtype", "F32"}, {"dims", dims_json(program, node.output)}});
    }
  }
  const std::string offset = offset_input(program);
  if (!offset.empty()) entry["offset"] = {{"input", offset}, {"axis", 0}};
  if (offset == "past") entry["inputs"].push_back({{"name", "past"}, {"dtype", "F32"}, {"dims", {"offset", 0}}});
  for (const ProgramOutput& output : program.outputs) {
    entry["outputs"].push_back({{"name", output.name}, {"dtype", "F32"}, {"dims", dims_json(program, output.value)}});
  }
  for (const ProgramState& state : program.states) {
    json item{{"name", state.name},
              {"kind", state.is_ring() ? "ring" : "full"},
              {"layer", state.layer},
              {"dtype", to_string(state.layout.dtype)},
              {"dims", dims_json(program, state.initial)},
              {"inputs", {state_input(state, 'k'), state_input(state, 'v')}},
              {"outputs", {state_output(state, 'k'), state_output(state, 'v')}}};
    if (state.is_ring()) item.update({{"capacity", state.capacity}, {"window", state.window}});
    if (state.final == state.initial) item["outputs"] = json::array();
    entry["states"].push_back(std::move(item));
  }
  return entry;
}

json model_json(const ModelSpec& spec) {
  json layers = json::array();
  for (const LayerSpec& layer : spec.layers) {
    layers.push_back({{"kind", layer.kind == LayerKind::sliding ? "sliding" : "full"},
                      {"window", layer.window},
                      {"n_kv_heads", layer.n_kv_heads},
                      {"head_dim", layer.head_dim}});
  }
  return {{"family", spec.family},           {"architecture", spec.architecture},     {"vocab_size", spec.vocab_size},
          {"hidden_size", spec.hidden_size}, {"context_length", spec.context_length}, {"n_heads", spec.n_heads},
          {"layers", std::move(layers)}};
}

/// The files of a bundle: all of them are written under temporary names before the first takes its own, so that an
/// export that fails leaves what was there before.
class BundleWriter {
 public:
  explicit BundleWriter(fs::path folder) : folder_(std::move(folder)) {}

  /// A file that the caller fills and that finish() renames.
  template <class Writer, class... Args>
  Writer& add(const std::string& name, Args&&... args) {
    auto writer = std::make_shared<Writer>(folder_ / name, std::forward<Args>(args)...);
    files_.push_back(
        {.name = name, .complete = [writer] { writer->complete(); }, .commit = [writer] { writer->commit(); }});
    return *writer;
  }
  template <class Bytes>
  void add_whole(const std::string& name, const Bytes& bytes) {
    OutputFile& file = add<OutputFile>(name);
    file.write(bytes);
    file.complete();
  }
  /// The manifest is the last to come and the first to go: without it a bundle is none, and old and new files cannot
  /// be taken for one.
  std::vector<ExportedFile> finish(std::string_view manifest) {
    add_whole(kManifestFile, manifest);
    for (const File& file : files_) file.complete();
    std::error_code problem;
    fs::remove(folder_ / kManifestFile, problem);
    if (problem) {
      throw Error(ErrorCode::io, {.where = (folder_ / kManifestFile).string(),
                                  .expected = "an old manifest that can be replaced",
                                  .got = problem.message(),
                                  .advice = {}});
    }
    std::vector<ExportedFile> result;
    for (const File& file : files_) {
      file.commit();
      result.push_back({.name = file.name, .bytes = static_cast<int64_t>(fs::file_size(folder_ / file.name))});
    }
    return result;
  }

 private:
  struct File {
    std::string name;
    std::function<void()> complete;
    std::function<void()> commit;
  };
  fs::path folder_;
  std::vector<File> files_;
};

/// The weights of a bundle have the name that a Hugging Face folder's have: such a folder must not lose its own.
void refuse_model_folder(const fs::path& folder, const fs::path& model, const fs::path& drafter) {
  std::error_code problem;  // what cannot be looked at is not there
  if (fs::equivalent(folder, model, problem) || fs::equivalent(folder, drafter, problem)) {
    throw Error(ErrorCode::invalid_argument, {.where = folder.string(),
                                              .expected = "another folder to write to",
                                              .got = "the model that is being read",
                                              .advice = "choose another name"});
  }
  if (fs::exists(folder / kWeightsFile, problem) && !fs::exists(folder / kManifestFile, problem)) {
    throw Error(ErrorCode::invalid_argument,
                {.where = (folder / kWeightsFile).string(),
                 .expected = fmt::format("a folder without weights, or one with a bundle's {}", kManifestFile),
                 .got = "weights that are not a bundle's",
                 .advice = "choose another folder, or remove the file"});
  }
}

/// Copies what the tokenizer is read from, and says what it is.
json write_tokenizer(const Model& model, BundleWriter& bundle) {
  if (!model.has_tokenizer()) return nullptr;
  const Tokenizer& tokenizer = model.tokenizer();
  json facts{{"size", tokenizer.size()}, {"add_bos", tokenizer.add_bos()}, {"end_of_turn", tokenizer.end_of_turn()}};
  if (tokenizer.bos()) facts["bos"] = *tokenizer.bos();
  std::vector<std::string> files;
  if (fs::is_directory(model.path())) {
    for (const char* name : kTokenizerFiles) {
      if (!fs::is_regular_file(model.path() / name)) continue;
      bundle.add_whole(name, MappedFile::open(model.path() / name)->bytes());
      files.emplace_back(name);
    }
  } else {
    // A GGUF file's metadata without its tensors.
    const auto source = MappedFile::open(model.path());
    const GgufHeader header = GgufHeader::parse(source->bytes(), model.path().string());
    auto& writer = bundle.add<GgufWriter>(kTokenizerGguf);
    for (const GgufHeader::Entry& entry : header.entries()) {
      if (entry.key.starts_with("tokenizer.") || entry.key == "general.architecture")
        writer.copy(entry.key, entry.value);
    }
    writer.complete();
    files.emplace_back(kTokenizerGguf);
  }
  facts["files"] = files;
  return facts;
}

/// Null where no drafter is asked for.
std::shared_ptr<const Drafter> open_drafter(const fs::path& path, const ModelSpec& target, ThreadPool& pool) {
  if (path.empty()) return nullptr;
  auto drafter = load_drafter(*ModelFiles::open(path), pool);
  const DrafterSpec& spec = drafter->spec();
  const bool fits = spec.hidden_size == target.hidden_size && spec.mask_token < target.vocab_size &&
                    !spec.taps.empty() && spec.taps.back() < static_cast<int>(target.layers.size());
  if (fits) return drafter;
  throw Error(ErrorCode::mismatch,
              {.where = path.string(),
               .expected = fmt::format("a drafter for hidden size {}, {} layers and {} tokens", target.hidden_size,
                                       target.layers.size(), target.vocab_size),
               .got = fmt::format("hidden size {}, last tap {}, mask token {}", spec.hidden_size,
                                  spec.taps.empty() ? -1 : spec.taps.back(), spec.mask_token),
               .advice = "give the drafter that was trained for this model"});
}

/// Graph mode: everything comes from one traced main.
std::vector<Program> graph_mode(Program main, WeightQuantiser& quantiser) {
  Program prefill = trim_to_prefill(main);  // first, so that nothing is quantised for a model that is refused
  quantise_weights(main, quantiser);
  quantise_weights(prefill, quantiser);
  Program score = main;
  score.name = "score";
  // Without a ring nothing is lost by writing first: the mode is a name only.
  prefill.mode = score.mode = StepMode::prefill;
  std::vector<Program> programs;
  programs.push_back(std::move(main));
  programs.push_back(std::move(prefill));
  programs.push_back(std::move(score));
  return programs;
}

std::vector<Program> make_programs(const std::shared_ptr<const Decoder>& decoder,
                                   const std::shared_ptr<const Drafter>& drafter, const ExportOptions& options,
                                   ThreadPool& pool) {
  std::optional<WeightQuantiser> quantiser;
  LinearSubstitute substitute;
  if (options.quantise) {
    quantiser.emplace(*options.quantise, pool);
    substitute = [&](const std::shared_ptr<const Linear>& linear) { return (*quantiser)(linear); };
  }
  const bool graph = options.quantise && options.mode == QuantiseMode::graph;
  const auto traced = [&](const char* name, StepMode mode, LogitRows logits) {
    DecoderTraceOptions trace;
    trace.mode = mode;
    trace.logits = logits;
    trace.kv_dtype = options.kv_dtype;
    trace.embeddings = options.embeddings;
    if (drafter) trace.taps = drafter->spec().taps;
    if (!graph) trace.substitute = substitute;
    return trace_decoder(name, decoder, trace);
  };
  std::vector<Program> programs;
  if (graph) {
    programs = graph_mode(traced("main", StepMode::main, LogitRows::all), *quantiser);
  } else {
    programs.push_back(traced("main", StepMode::main, LogitRows::all));
    programs.push_back(traced("prefill", StepMode::prefill, LogitRows::none));
    programs.push_back(traced("score", StepMode::prefill, LogitRows::all));
  }
  if (options.embeddings) programs.push_back(trace_embeddings("embed", decoder));
  if (drafter) {
    programs.push_back(trace_inject("inject", drafter, options.kv_dtype, substitute));
    programs.push_back(trace_draft("draft", drafter, decoder, options.kv_dtype, substitute));
  }
  return programs;
}

}  // namespace

std::vector<Program> make_programs(const Model& model, const ExportOptions& options) {
  ThreadPool pool(options.threads);
  return make_programs(model.shared_decoder(), open_drafter(options.drafter, model.spec(), pool), options, pool);
}

std::vector<ExportedFile> export_model(const Model& model, const ExportOptions& options, const fs::path& folder) {
  refuse_model_folder(folder, model.path(), options.drafter);
  ThreadPool pool(options.threads);
  const auto drafter = open_drafter(options.drafter, model.spec(), pool);
  const std::vector<Program> programs = make_programs(model.shared_decoder(), drafter, options, pool);
  std::vector<const Program*> pointers;
  for (const Program& program : programs) pointers.push_back(&program);
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem) {
    throw Error(ErrorCode::io,
                {.where = folder.string(), .expected = "a folder to write to", .got = problem.message(), .advice = {}});
  }

  BundleWriter bundle(folder);
  const std::map<std::string, std::string> format{{"format", "slipring"}};
  const WeightPlaces places = write_weights(pointers, bundle.add<SafetensorsWriter>(kWeightsFile, format));
  json manifest{{"format", kBundleFormat},
                {"version", kBundleVersion},
                {"model", model_json(model.spec())},
                {"weights",
                 {{"file", kWeightsFile},
                  {"quantised", options.quantise ? json(to_string(*options.quantise)) : json(nullptr)},
                  {"mode", options.mode == QuantiseMode::graph ? "graph" : "eager"}}},
                {"embeddings", options.embeddings},
                {"kv_dtype", to_string(options.kv_dtype)},
                {"opset", OnnxGraph::kOpset},
                {"dimensions",
                 {{"query_len", "tokens of the step, any number >= 1 that the constraints allow"},
                  {"offset", "positions written before the step"},
                  {"seq_len", "offset + query_len"}}},
                {"programs", json::array()}};
  if (drafter) {
    const DrafterSpec& spec = drafter->spec();
    manifest["drafter"] = {{"block_size", spec.block_size}, {"mask_token", spec.mask_token}, {"taps", spec.taps}};
  }
  for (const Program& program : programs) {
    bundle.add_whole(program.name + ".program", std::string_view(to_text(program)));
    bundle.add_whole(program.name + ".onnx", std::string_view(to_onnx(program, places).SerializeAsString()));
    manifest["programs"].push_back(program_json(program));
  }
  manifest["tokenizer"] = write_tokenizer(model, bundle);
  return bundle.finish(manifest.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace slipring
