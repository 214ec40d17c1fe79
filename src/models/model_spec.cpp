#include <algorithm>

#include <slipring/model_spec.h>

namespace slipring {
namespace {

int64_t bytes_a_position(const LayerSpec& layer, DType dtype) noexcept {
  return 2 * bytes_of(dtype, int64_t{layer.n_kv_heads} * layer.head_dim);
}

}  // namespace

int64_t largest_window(const ModelSpec& spec) noexcept {
  int64_t window = 0;
  for (const LayerSpec& layer : spec.layers) window = std::max(window, layer.window);
  return window;
}

int64_t kv_bytes(const ModelSpec& spec, int64_t positions, DType kv_dtype) noexcept {
  int64_t bytes = 0;
  for (const LayerSpec& layer : spec.layers) {
    // A ring is allocated whole; a full layer holds what was written.
    bytes += bytes_a_position(layer, kv_dtype) * (layer.kind == LayerKind::sliding ? layer.window : positions);
  }
  return bytes;
}

int64_t kv_bytes_without_rings(const ModelSpec& spec, int64_t positions, DType kv_dtype) noexcept {
  int64_t bytes = 0;
  for (const LayerSpec& layer : spec.layers) bytes += bytes_a_position(layer, kv_dtype) * positions;
  return bytes;
}

}  // namespace slipring
