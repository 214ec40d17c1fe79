#include "models/config.h"

#include <cmath>
#include <fmt/format.h>

#include <slipring/error.h>

namespace slipring {

void bad_key(const ModelFiles& files, std::string_view key, std::string expected, std::string got) {
  throw Error(ErrorCode::bad_file, {.where = files.path().string() + ": " + std::string(key),
                                    .expected = std::move(expected),
                                    .got = std::move(got),
                                    .advice = {}});
}

double read_positive(const ModelFiles& files, Names key, double fallback) {
  const double value = files.real(key).value_or(fallback);
  if (!(static_cast<float>(value) > 0) || !std::isfinite(static_cast<float>(value))) {
    bad_key(files, files.is_gguf() ? key.gguf : key.hf, "a number above 0", fmt::format("{}", value));
  }
  return value;
}

float read_softcap(const ModelFiles& files, Names key, double fallback) {
  const auto value = static_cast<float>(files.real(key).value_or(fallback));
  if (!(value >= 0) || !std::isfinite(value)) {
    bad_key(files, files.is_gguf() ? key.gguf : key.hf, "a number above 0, or 0 for none", fmt::format("{}", value));
  }
  return value;
}

namespace {

void check_activation(const ModelFiles& files, const CommonDefaults& family) {
  const auto name = files.text({family.activation_key, {}});
  if (!name || *name == family.activation || (*name == "swish" && family.activation == "silu")) return;
  throw Error(ErrorCode::unsupported, {.where = files.path().string() + ": " + std::string(family.activation_key),
                                       .expected = std::string(family.activation),
                                       .got = "\"" + *name + "\"",
                                       .advice = {}});
}

}  // namespace

CommonConfig read_common_config(const ModelFiles& files, const CommonDefaults& defaults) {
  CommonConfig config;
  const auto integer = [&](Names key, int64_t fallback, int64_t most) {
    if (!files.is_gguf() && fallback > 0 && !files.integer(key)) return fallback;
    return files.require_integer(key, 1, most);
  };
  config.n_layers = files.require_integer({"num_hidden_layers", "block_count"}, 1, kMaxLayers);
  config.hidden_size = files.require_integer({"hidden_size", "embedding_length"}, 1, kMaxFeatures);
  config.intermediate_size = files.require_integer({"intermediate_size", "feed_forward_length"}, 1, kMaxFeatures);
  config.n_heads =
      static_cast<int>(integer({"num_attention_heads", "attention.head_count"}, defaults.n_heads, kMaxHeads));
  config.context_length = integer({"max_position_embeddings", "context_length"}, defaults.context_length, kMaxContext);
  const Names kv_heads{"num_key_value_heads", "attention.head_count_kv"};
  const int kv_default = files.is_gguf() || defaults.n_kv_heads == 0 ? config.n_heads : defaults.n_kv_heads;
  config.n_kv_heads =
      files.integer(kv_heads) ? static_cast<int>(files.require_integer(kv_heads, 1, config.n_heads)) : kv_default;
  if (config.n_heads % config.n_kv_heads != 0) {
    bad_key(files, files.is_gguf() ? kv_heads.gguf : kv_heads.hf, fmt::format("a divisor of {} heads", config.n_heads),
            std::to_string(config.n_kv_heads));
  }
  const Names head_dim{"head_dim", "attention.key_length"};
  if (files.integer(head_dim)) {
    config.head_dim = static_cast<int>(files.require_integer(head_dim, 1, kMaxHeadDim));
  } else if (!files.is_gguf() && defaults.head_dim > 0) {
    config.head_dim = defaults.head_dim;
  } else if (config.hidden_size % config.n_heads == 0) {
    config.head_dim = static_cast<int>(config.hidden_size / config.n_heads);
  } else {
    bad_key(files, files.is_gguf() ? head_dim.gguf : head_dim.hf, "a value, as hidden size is no multiple of the heads",
            "nothing");
  }
  const Names value_dim{{}, "attention.value_length"};
  if (files.integer(value_dim)) files.require_integer(value_dim, config.head_dim, config.head_dim);
  check_activation(files, defaults);
  config.norm_eps = read_positive(files, {"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, defaults.norm_eps);

  const auto told_size = files.integer({"vocab_size", "vocab_size"});
  const Tensor table = WeightLoader::embedding_table(files);
  if (table.empty()) {
    config.vocab_size = files.require_integer({"vocab_size", "vocab_size"}, 1, kMaxVocabulary);
  } else if (table.shape().rank() == 2 && table.shape()[0] >= 1 && table.shape()[0] <= kMaxVocabulary) {
    config.vocab_size = table.shape()[0];
    // Converters to GGUF cut rows that have no token, and keep the key.
    if (told_size && !files.is_gguf() && *told_size != config.vocab_size) {
      bad_key(files, "vocab_size", fmt::format("{}, the rows of the embedding table", config.vocab_size),
              std::to_string(*told_size));
    }
  } else {
    bad_key(files, files.is_gguf() ? WeightLoader::kEmbedding.gguf : WeightLoader::kEmbedding.hf,
            fmt::format("a matrix of 1 to {} rows", kMaxVocabulary), "shape " + table.shape().to_string());
  }
  return config;
}

void fill_spec(ModelSpec& spec, const char* family, const ModelFiles& files, const CommonConfig& config,
               const std::vector<LayerKind>& kinds, int64_t window) {
  spec.family = family;
  spec.architecture = files.architecture();
  spec.vocab_size = config.vocab_size;
  spec.hidden_size = config.hidden_size;
  spec.context_length = config.context_length;
  spec.n_heads = config.n_heads;
  if (window > config.context_length) {
    spec.notices.push_back(fmt::format("{}: the window of {} reaches beyond the context; using the context, {}",
                                       files.path().string(), window, config.context_length));
    window = config.context_length;
  }
  for (const LayerKind kind : kinds) {
    spec.layers.push_back({.kind = kind,
                           .window = kind == LayerKind::sliding ? window : 0,
                           .n_kv_heads = config.n_kv_heads,
                           .head_dim = config.head_dim,
                           .rope_theta = 0.0});
  }
}

std::vector<LayerKind> read_layer_kinds(const ModelFiles& files, int64_t n_layers, LayerPattern fallback,
                                        ModelSpec& spec) {
  std::vector<LayerKind> kinds;
  const auto check_length = [&](std::string_view key, size_t length) {
    if (static_cast<int64_t>(length) != n_layers) {
      bad_key(files, key, fmt::format("{} entries, one a layer", n_layers), std::to_string(length));
    }
  };
  if (!files.is_gguf()) {
    if (const auto types = files.texts({"layer_types", ""})) {
      check_length("layer_types", types->size());
      for (const std::string& type : *types) {
        if (type == "sliding_attention") {
          kinds.push_back(LayerKind::sliding);
        } else if (type == "full_attention") {
          kinds.push_back(LayerKind::full);
        } else {
          bad_key(files, "layer_types", "sliding_attention or full_attention", "\"" + type + "\"");
        }
      }
      return kinds;
    }
  }
  const Names pattern_key{"sliding_window_pattern", "attention.sliding_window_pattern"};
  const std::string_view pattern_name = files.is_gguf() ? pattern_key.gguf : pattern_key.hf;
  auto pattern = files.integers(pattern_key);
  if (!pattern) pattern = files.integers({"_sliding_window_pattern", ""});
  if (pattern && pattern->size() > 1) {
    check_length(pattern_name, pattern->size());
    for (const int64_t slides : *pattern) kinds.push_back(slides != 0 ? LayerKind::sliding : LayerKind::full);
    return kinds;
  }
  if (pattern && pattern->size() == 1 && n_layers > 1) {
    // A bare number n means: every n-th layer is full, counted from one. 0 and 1 leave no room for a sliding layer.
    const int64_t period = pattern->front();
    if (period < 1) bad_key(files, pattern_name, "a period of at least 1", std::to_string(period));
    fallback = {.period = period, .full_residue = period - 1, .rest = LayerKind::sliding};
  } else if (fallback.period != 0) {
    spec.notices.push_back(
        fmt::format("{}: no list of sliding layers; using the family's pattern, layer i is full when i % {} == {}",
                    files.path().string(), fallback.period, fallback.full_residue));
  }
  for (int64_t layer = 0; layer < n_layers; ++layer) {
    const bool full = fallback.period != 0 && layer % fallback.period == fallback.full_residue;
    kinds.push_back(full ? LayerKind::full : fallback.rest);
  }
  return kinds;
}

int64_t read_window(const ModelFiles& files, int64_t fallback, ModelSpec& spec) {
  const Names key{"sliding_window", "attention.sliding_window"};
  if (!files.integer(key) && fallback > 0) {
    spec.notices.push_back(
        fmt::format("{}: no {}; using {}", files.path().string(), files.is_gguf() ? key.gguf : key.hf, fallback));
    return fallback;
  }
  return files.require_integer(key, 1, kMaxContext);
}

}  // namespace slipring
