// slipring inspect: what a model file holds, and what a conversation with it costs.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/common.h"
#include "formats/model_files.h"
#include "models/decoder.h"

namespace slipring::cli {
namespace {

struct InspectFlags {
  std::string model;
  std::string kv = "f16";
  bool json = false;
};

struct TensorTypes {
  int64_t count = 0;
  int64_t bytes = 0;
};

std::map<std::string, TensorTypes> tensor_types(const ModelFiles& files) {
  std::map<std::string, TensorTypes> types;
  for (const std::string& name : files.tensor_names()) {
    const Tensor tensor = files.find_tensor({name, name});
    TensorTypes& entry = types[std::string(to_string(tensor.dtype()))];
    ++entry.count;
    entry.bytes += tensor.bytes();
  }
  return types;
}

std::vector<int64_t> context_lengths(int64_t longest) {
  std::vector<int64_t> lengths;
  for (int64_t n = 1024; n < longest; n *= 4) lengths.push_back(n);
  lengths.push_back(longest);
  return lengths;
}

const char* kind_name(LayerKind kind) {
  return kind == LayerKind::sliding ? "sliding" : "full";
}

nlohmann::json as_json(const ModelFiles& files, const ModelSpec& spec, DType kv) {
  nlohmann::json out{{"path", files.path().string()},
                     {"format", files.is_gguf() ? "gguf" : "safetensors"},
                     {"family", spec.family},
                     {"architecture", spec.architecture},
                     {"hidden_size", spec.hidden_size},
                     {"vocab_size", spec.vocab_size},
                     {"context_length", spec.context_length},
                     {"n_heads", spec.n_heads},
                     {"file_bytes", files.file_bytes()},
                     {"notices", spec.notices},
                     {"kv_dtype", to_string(kv)}};
  for (const LayerSpec& layer : spec.layers) {
    out["layers"].push_back({{"kind", kind_name(layer.kind)},
                             {"window", layer.window},
                             {"n_kv_heads", layer.n_kv_heads},
                             {"head_dim", layer.head_dim},
                             {"rope_theta", layer.rope_theta}});
  }
  for (const int64_t n : context_lengths(spec.context_length)) {
    out["kv_bytes"].push_back({{"tokens", n},
                               {"bytes", kv_bytes(spec, n, kv)},
                               {"bytes_without_rings", kv_bytes_without_rings(spec, n, kv)}});
  }
  for (const auto& [name, entry] : tensor_types(files)) {
    out["tensor_types"].push_back({{"type", name}, {"count", entry.count}, {"bytes", entry.bytes}});
  }
  return out;
}

// Equal neighbours in one line: "0-2, 4-6".
std::string layer_ranges(const std::vector<int>& layers) {
  std::string text;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i;
    while (end + 1 < layers.size() && layers[end + 1] == layers[end] + 1) ++end;
    text += (text.empty() ? "" : ", ") +
            (i == end ? std::to_string(layers[i]) : fmt::format("{}-{}", layers[i], layers[end]));
    i = end + 1;
  }
  return text;
}

void print(const ModelFiles& files, const ModelSpec& spec, DType kv) {
  fmt::print("{}\n  {} ({}), {} layers, hidden {}, {} heads, vocabulary {}, context {}, {}\n", files.path().string(),
             spec.family, spec.architecture, spec.layers.size(), spec.hidden_size, spec.n_heads, spec.vocab_size,
             spec.context_length, human_bytes(files.file_bytes()));
  for (const std::string& notice : spec.notices) fmt::print("  note: {}\n", notice);

  std::map<std::string, std::vector<int>> groups;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    std::string what = layer.kind == LayerKind::sliding ? fmt::format("sliding, window {}", layer.window) : "full";
    what += fmt::format(", {} KV heads of {}, ", layer.n_kv_heads, layer.head_dim);
    what += layer.rope_theta > 0 ? fmt::format("RoPE base {:g}", layer.rope_theta) : "no position embedding";
    groups[what].push_back(static_cast<int>(i));
  }
  fmt::print("\nlayers\n");
  for (const auto& [what, layers] : groups) fmt::print("  {:<4} {}: {}\n", layers.size(), what, layer_ranges(layers));

  fmt::print("\nkeys and values in {}\n  {:>9}  {:>10}  {:>13}\n", to_string(kv), "tokens", "slipring",
             "without rings");
  for (const int64_t n : context_lengths(spec.context_length)) {
    fmt::print("  {:>9}  {:>10}  {:>13}\n", n, human_bytes(kv_bytes(spec, n, kv)),
               human_bytes(kv_bytes_without_rings(spec, n, kv)));
  }
  fmt::print("\ntensors\n");
  for (const auto& [name, entry] : tensor_types(files)) {
    fmt::print("  {:<8} {:>5}  {:>10}\n", name, entry.count, human_bytes(entry.bytes));
  }
}

void inspect(const InspectFlags& flags) {
  const auto files = ModelFiles::open(flags.model.empty() ? default_model_path() : std::filesystem::path(flags.model));
  const ModelSpec spec = read_model_spec(*files);
  const DType kv = dtype_from_name(flags.kv).value();
  if (flags.json) {
    fmt::print("{}\n", to_text(as_json(*files, spec, kv)));
  } else {
    print(*files, spec, kv);
  }
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand("inspect", "Layers, windows, memory at several contexts, tensor types");
  auto* place = command->add_option("path", flags->model, "GGUF file or Hugging Face folder; as -m");
  command->add_option("-m,--model", flags->model, "GGUF file or Hugging Face folder")
      ->type_name("PATH")
      ->excludes(place);
  add_kv(*command, flags->kv);
  command->add_flag("--json", flags->json, "One JSON object");
  command->callback([flags] { inspect(*flags); });
}

}  // namespace slipring::cli
