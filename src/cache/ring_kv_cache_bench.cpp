// fetch_and_concat copies nothing: its time must not grow with the window.
#include <benchmark/benchmark.h>

#include <slipring/ring_kv_cache.h>

namespace slipring {
namespace {

constexpr KVLayout kLayout{.n_kv_heads = 4, .head_dim = 64, .dtype = DType::F16};

KVBlock zeros(int64_t count) {
  const Shape shape{count, kLayout.n_kv_heads, kLayout.head_dim};
  return KVBlock::of(Tensor(kLayout.dtype, shape), Tensor(kLayout.dtype, shape));
}

RingKVCache wrapped(int64_t window) {
  return {window, window, kLayout};
}

void fill(RingKVCache& cache, int64_t window) {
  cache.update(zeros(window));
  cache.update(zeros(window / 2));  // the held positions lie in two runs
}

void BM_FetchAndConcat(benchmark::State& state) {
  const int64_t window = state.range(0);
  RingKVCache cache = wrapped(window);
  fill(cache, window);
  const KVBlock block = zeros(16);
  for (auto _ : state) benchmark::DoNotOptimize(cache.fetch_and_concat(block));
}
BENCHMARK(BM_FetchAndConcat)->RangeMultiplier(8)->Range(128, 65536);

/// For comparison: what a copy of the window would cost.
void BM_CopyOfTheWindow(benchmark::State& state) {
  const int64_t window = state.range(0);
  RingKVCache cache = wrapped(window);
  fill(cache, window);
  for (auto _ : state) benchmark::DoNotOptimize(cache.k_slots().clone());
}
BENCHMARK(BM_CopyOfTheWindow)->RangeMultiplier(8)->Range(128, 65536);

void BM_UpdateOneToken(benchmark::State& state) {
  const int64_t window = state.range(0);
  RingKVCache cache = wrapped(window);
  const KVBlock block = zeros(1);
  for (auto _ : state) cache.update(block);
}
BENCHMARK(BM_UpdateOneToken)->RangeMultiplier(8)->Range(128, 65536);

}  // namespace
}  // namespace slipring
