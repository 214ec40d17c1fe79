// Attention at the shapes of real models: time a token (decode) or a chunk (prefill), GB/s of keys and values read,
// GFLOP/s and the share of this machine's measured float peak.
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_bench.cpp"
#include "kernels/foreach_lanes_target.h"
// foreach_lanes_target.h comes first: it includes this file once a target.
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

/// Twelve independent chains of fused multiply-adds: nothing but the arithmetic units.
float FmaChains(int64_t steps) {
  constexpr int kChains = 12;
  Lanes sums[kChains];
  for (Lanes& sum : sums) sum = Set(1.0F);
  const Lanes factor = Set(0.999F);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (Lanes& sum : sums) sum = Fma(sum, factor, factor);
  }
  float total = 0;
  for (const Lanes& sum : sums) total += SumOfLanes(sum);
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipring {
namespace {

HWY_EXPORT(FmaChains);

/// GFLOP/s of one thread, the best of several tries.
double peak_of_one_thread() {
  static const double peak = [] {
    constexpr int64_t kSteps = 200000;
    double best = 0;
    for (int i = 0; i < 10; ++i) {
      const auto start = std::chrono::steady_clock::now();
      benchmark::DoNotOptimize(HWY_DYNAMIC_DISPATCH(FmaChains)(kSteps));
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      best = std::max(best, 2.0 * 12 * 16 * static_cast<double>(kSteps) / taken.count() * 1e-9);
    }
    return best;
  }();
  return peak;
}

struct Geometry {
  int n_heads, n_kv_heads, head_dim;
};
constexpr Geometry kMuse{12, 2, 128};
constexpr Geometry kSmol{9, 3, 64};
constexpr Geometry kGemma{4, 1, 256};

/// `layers` caches of `held` positions each, walked one after the other as a step walks a model's.
void run(benchmark::State& state, Geometry g, int layers, int64_t held, int64_t offset, int64_t query_len,
         PositionRule rule, int threads) {
  const int64_t row = static_cast<int64_t>(g.n_kv_heads) * g.head_dim;
  const auto size = static_cast<size_t>(held * row);
  std::vector<std::vector<uint16_t>> keys(static_cast<size_t>(layers), std::vector<uint16_t>(size, 0x2E66));
  std::vector<std::vector<uint16_t>> values(keys);
  std::vector<float> q(static_cast<size_t>(query_len * g.n_heads * g.head_dim), 0.125F);
  std::vector<float> out(q.size());
  std::vector<KVView> views;
  const int64_t first = offset + query_len - held;
  const int64_t split = held / 3;  // as a ring lies
  for (int layer = 0; layer < layers; ++layer) {
    const uint16_t* k = keys[static_cast<size_t>(layer)].data();
    const uint16_t* v = values[static_cast<size_t>(layer)].data();
    views.push_back(
        {DType::F16,
         g.n_kv_heads,
         g.head_dim,
         {{k + (held - split) * row, v + (held - split) * row, first, split}, {k, v, first + split, held - split}}});
  }
  ThreadPool pool(threads);
  int64_t seen = 0;
  for (int64_t i = 0; i < query_len; ++i) seen += rule.end(offset + i, offset + query_len) - rule.first(offset + i);
  for (auto _ : state) {
    for (const KVView& view : views) {
      AttentionTask task;
      task.q = q.data();
      task.out = out.data();
      task.offset = offset;
      task.query_len = query_len;
      task.n_heads = g.n_heads;
      task.scale = 0.1F;
      task.rule = rule;
      task.view = &view;
      attention({&task, 1}, pool);
    }
  }
  const double flops = 4.0 * static_cast<double>(seen * g.n_heads * g.head_dim * layers);
  const double bytes = 4.0 * static_cast<double>(held * row * layers);
  const auto rounds = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(bytes * rounds * 1e-9, benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] = benchmark::Counter(flops * rounds * 1e-9, benchmark::Counter::kIsRate);
  state.counters["of_peak"] =
      benchmark::Counter(flops * rounds * 1e-9 / (threads * peak_of_one_thread()), benchmark::Counter::kIsRate);
}

void decode(benchmark::State& state, Geometry g, int layers, int64_t window) {
  const int64_t depth = state.range(0);
  const int64_t held = window == 0 ? depth + 1 : std::min(window, depth + 1);
  run(state, g, layers, held, depth, 1, window == 0 ? PositionRule::causal() : PositionRule::window(window),
      static_cast<int>(state.range(1)));
}

void prefill(benchmark::State& state, Geometry g, int64_t window) {
  const int64_t depth = state.range(0);
  const int64_t held = window == 0 ? depth + 512 : std::min(window + 511, depth + 512);
  run(state, g, 1, held, depth, 512, window == 0 ? PositionRule::causal() : PositionRule::window(window),
      static_cast<int>(state.range(1)));
}

void threads_at(benchmark::internal::Benchmark* bench, std::initializer_list<int64_t> depths) {
  for (const int64_t depth : depths) {
    for (const int64_t threads : {1, 2}) bench->Args({depth, threads});
  }
  bench->ArgNames({"depth", "threads"})->Unit(benchmark::kMicrosecond)->UseRealTime();
}

BENCHMARK_CAPTURE(decode, muse_4_full, kMuse, 4, 0)->Apply([](auto* b) { threads_at(b, {1024, 4096, 32768}); });
BENCHMARK_CAPTURE(decode, muse_12_sliding_1024, kMuse, 12, 1024)->Apply([](auto* b) { threads_at(b, {4096, 65536}); });
BENCHMARK_CAPTURE(decode, smol_30_full, kSmol, 30, 0)->Apply([](auto* b) { threads_at(b, {2048}); });
BENCHMARK_CAPTURE(decode, smol_1_full, kSmol, 1, 0)->Apply([](auto* b) { threads_at(b, {2048}); });
BENCHMARK_CAPTURE(decode, smol_8_full, kSmol, 8, 0)->Apply([](auto* b) { threads_at(b, {2048}); });
BENCHMARK_CAPTURE(decode, gemma_3_full, kGemma, 3, 0)->Apply([](auto* b) { threads_at(b, {8192}); });
BENCHMARK_CAPTURE(decode, gemma_15_sliding_512, kGemma, 15, 512)->Apply([](auto* b) { threads_at(b, {8192}); });
BENCHMARK_CAPTURE(prefill, muse_full, kMuse, 0)->Apply([](auto* b) { threads_at(b, {0, 4096}); });
BENCHMARK_CAPTURE(prefill, muse_sliding_1024, kMuse, 1024)->Apply([](auto* b) { threads_at(b, {4096}); });
BENCHMARK_CAPTURE(prefill, smol_full, kSmol, 0)->Apply([](auto* b) { threads_at(b, {2048}); });
BENCHMARK_CAPTURE(prefill, gemma_sliding_512, kGemma, 512)->Apply([](auto* b) { threads_at(b, {4096}); });

}  // namespace
}  // namespace slipring
#endif  // HWY_ONCE
