#include "engine/export.h"

#include <fmt/format.h>
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

/// Copies what the tokenizer is read from, and says what it is.
json write_tokenizer(const Model& model, const fs::path& folder, std::vector<std::string>& written) {
  if (!model.has_tokenizer()) return nullptr;
  const Tokenizer& tokenizer = model.tokenizer();
  json facts{{"size", tokenizer.size()}, {"add_bos", tokenizer.add_bos()}, {"end_of_turn", tokenizer.end_of_turn()}};
  if (tokenizer.bos()) facts["bos"] = *tokenizer.bos();
  std::vector<std::string> files;
  if (fs::is_directory(model.path())) {
    for (const char* name : kTokenizerFiles) {
      if (!fs::is_regular_file(model.path() / name)) continue;
      OutputFile file(folder / name);
      file.write(MappedFile::open(model.path() / name)->bytes());
      file.commit();
      files.emplace_back(name);
    }
  } else {
    // A GGUF file's metadata without its tensors.
    const auto source = MappedFile::open(model.path());
    const GgufHeader header = GgufHeader::parse(source->bytes(), model.path().string());
    GgufWriter writer(folder / kTokenizerGguf);
    for (const GgufHeader::Entry& entry : header.entries()) {
      if (entry.key.starts_with("tokenizer.") || entry.key == "general.architecture")
        writer.copy(entry.key, entry.value);
    }
    writer.finish();
    files.emplace_back(kTokenizerGguf);
  }
  facts["files"] = files;
  written.insert(written.end(), files.begin(), files.end());
  return facts;
}

void write_text(const fs::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
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
  ThreadPool pool(options.threads);
  const auto drafter = open_drafter(options.drafter, model.spec(), pool);
  const std::vector<Program> programs = make_programs(model.shared_decoder(), drafter, options, pool);
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem) {
    throw Error(ErrorCode::io,
                {.where = folder.string(), .expected = "a folder to write to", .got = problem.message(), .advice = {}});
  }
  std::vector<const Program*> pointers;
  for (const Program& program : programs) pointers.push_back(&program);

  // Without its manifest a bundle is none: what was here before is not mixed with what is written now.
  fs::remove(folder / kManifestFile, problem);
  if (problem) {
    throw Error(ErrorCode::io, {.where = (folder / kManifestFile).string(),
                                .expected = "an old manifest that can be replaced",
                                .got = problem.message(),
                                .advice = {}});
  }

  std::vector<std::string> written{kWeightsFile};
  const WeightPlaces places = write_weights(pointers, folder);
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
    write_text(folder / (program.name + ".program"), to_text(program));
    write_text(folder / (program.name + ".onnx"), to_onnx(program, places).SerializeAsString());
    written.push_back(program.name + ".program");
    written.push_back(program.name + ".onnx");
    manifest["programs"].push_back(program_json(program));
  }
  manifest["tokenizer"] = write_tokenizer(model, folder, written);
  write_text(folder / kManifestFile, manifest.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
  written.emplace_back(kManifestFile);

  std::vector<ExportedFile> files;
  for (const std::string& name : written) {
    files.push_back({.name = name, .bytes = static_cast<int64_t>(fs::file_size(folder / name))});
  }
  return files;
}

}  // namespace slipring
