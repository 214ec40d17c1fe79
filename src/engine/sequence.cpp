#include "engine/sequence.h"

#include <algorithm>
#include <optional>

#include <slipring/full_kv_cache.h>
#include <slipring/ring_kv_cache.h>

#include "tensor/page_pool.h"
#include "tensor/shared_pages.h"

namespace slipring {
namespace {

constexpr int64_t kWorthHugePages = int64_t{8} << 20;

}  // namespace

Sequence make_sequence(const std::vector<LayerSpec>& layers, DType kv_dtype) {
  // Huge pages are for rings that are worth a few of them; small ones would only be rounded up.
  std::optional<SharedPages> pages;
  int64_t ring_bytes = 0;
  for (const LayerSpec& layer : layers) {
    if (layer.kind == LayerKind::sliding) {
      ring_bytes += 2 * layer.window * bytes_of(kv_dtype, int64_t{layer.n_kv_heads} * layer.head_dim);
    }
  }
  if (ring_bytes >= kWorthHugePages) pages.emplace();

  const auto pool = PagePool::make();
  Sequence sequence;
  sequence.caches.reserve(layers.size());
  for (const LayerSpec& layer : layers) {
    const KVLayout layout{.n_kv_heads = layer.n_kv_heads, .head_dim = layer.head_dim, .dtype = kv_dtype};
    if (layer.kind == LayerKind::sliding) {
      sequence.caches.push_back(std::make_unique<RingKVCache>(layer.window, layer.window, layout));
      sequence.ring_capacities.push_back(layer.window);
    } else {
      sequence.caches.push_back(std::make_unique<FullKVCache>(layout, pool));
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
