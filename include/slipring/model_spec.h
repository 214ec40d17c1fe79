// Facts of a model that are the same whatever runs it: what its layers keep and how far they see.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <slipring/dtype.h>

namespace slipring {

enum class LayerKind : uint8_t {
  sliding,  ///< a query sees `window` keys; the cache is a ring
  full      ///< a query sees all of the past; the cache grows
};

/// One layer as the caches and `inspect` need it.
struct LayerSpec {
  LayerKind kind = LayerKind::full;
  int64_t window = 0;  ///< keys a query sees, itself included; 0 for full layers
  int n_kv_heads = 0;
  int head_dim = 0;
  double rope_theta = 0.0;  ///< 0: no position embedding
};

/// Facts of a model that are the same whatever runs it.
struct ModelSpec {
  std::string family;        ///< "muse_glimmer", "gemma3", ...: the file in src/models that runs it
  std::string architecture;  ///< as the model's own file spells it
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t context_length = 0;  ///< positions that the model was made for
  int n_heads = 0;
  std::vector<LayerSpec> layers;
  std::vector<std::string> notices;  ///< defaults that were used where the file says nothing
};

/// The widest window of the sliding layers; 0 if none slides.
int64_t largest_window(const ModelSpec& spec) noexcept;
/// Bytes of keys and values that one sequence of `positions` holds: a sliding layer never more than its window.
int64_t kv_bytes(const ModelSpec& spec, int64_t positions, DType kv_dtype) noexcept;
/// What it would be if every layer kept every position.
int64_t kv_bytes_without_rings(const ModelSpec& spec, int64_t positions, DType kv_dtype) noexcept;

}  // namespace slipring
