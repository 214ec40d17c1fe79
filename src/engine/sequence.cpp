#include "engine/sequence.h"

#include <algorithm>

#include <slipring/full_kv_cache.h>
#include <slipring/ring_kv_cache.h>

namespace slipring {

Sequence make_sequence(const std::vector<LayerSpec>& layers, DType kv_dtype) {
  Sequence sequence;
  sequence.caches.reserve(layers.size());
  for (const LayerSpec& layer : layers) {
    const KVLayout layout{.n_kv_heads = layer.n_kv_heads, .head_dim = layer.head_dim, .dtype = kv_dtype};
    if (layer.kind == LayerKind::sliding) {
      sequence.caches.push_back(std::make_unique<RingKVCache>(layer.window, layer.window, layout));
      sequence.ring_capacities.push_back(layer.window);
    } else {
      sequence.caches.push_back(std::make_unique<FullKVCache>(layout));
    }
  }
  std::vector<int64_t>& capacities = sequence.ring_capacities;
  std::sort(capacities.begin(), capacities.end());
  capacities.erase(std::unique(capacities.begin(), capacities.end()), capacities.end());
  return sequence;
}

int64_t bytes_held(const Sequence& sequence) noexcept {
  int64_t bytes = 0;
  for (const auto& cache : sequence.caches) bytes += cache->bytes_held();
  return bytes;
}

}  // namespace slipring
