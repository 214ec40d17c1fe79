// Decode (one row; the weights come from memory) and prefill (512 rows) of every weight format, as shares of what the
// machine can do. SLIPRING_TARGET forces a target, SLIPRING_BENCH_THREADS the threads (default: all cores).
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/packed_matrix.h"
#include "kernels/random_weights.h"
#include "kernels/roofline.h"
#include "kernels/targets.h"
#include "tensor/shared_pages.h"

namespace slipring {
namespace {

ThreadPool& pool() {
  static ThreadPool instance([] {
    const char* threads = std::getenv("SLIPRING_BENCH_THREADS");
    return threads == nullptr ? 0 : std::atoi(threads);
  }());
  return instance;
}

const Roofline& roof() {
  static const Roofline measured = measure_roofline(pool());
  return measured;
}

/// Weights of [n, cols]: one random panel of 256 rows over and over, since only the time matters.
Tensor repeated_weights(DType dtype, int64_t n, int64_t cols) {
  const Tensor panel = testing::random_weights(dtype, 256, cols, 5);
  Tensor weights(dtype, {n, cols});
  for (int64_t at = 0; at < weights.bytes(); at += panel.bytes()) {
    std::memcpy(weights.data<uint8_t>() + at, panel.raw(),
                static_cast<size_t>(std::min(panel.bytes(), weights.bytes() - at)));
  }
  return weights;
}

void multiply(benchmark::State& state, DType dtype, int64_t n, int64_t cols, int64_t rows) {
  const PackedMatrix weight = PackedMatrix::pack(repeated_weights(dtype, n, cols), pool());
  const std::vector<float> x = testing::random_activations(rows * cols, 3);
  std::vector<float> y(static_cast<size_t>(rows * n));
  const MatmulOutput output{&weight, y.data()};
  roof();
  for (auto _ : state) {
    Activations activations(x.data(), rows, cols);
    matmul(activations, {&output, 1}, pool());
    benchmark::DoNotOptimize(y.data());
  }
  const auto count = static_cast<double>(state.iterations());
  const double macs = count * static_cast<double>(n * cols * rows);
  const double bytes = count * static_cast<double>(weight.bytes());
  const double peak = weight.integer_activations() ? roof().quantised_macs_per_s : roof().float_macs_per_s;
  using benchmark::Counter;
  state.counters["GB/s"] = Counter(bytes * 1e-9, Counter::kIsRate);
  state.counters["%bandwidth"] = Counter(bytes / roof().read_bytes_per_s * 100, Counter::kIsRate);
  state.counters["GMAC/s"] = Counter(macs * 1e-9, Counter::kIsRate);
  state.counters["%peak"] = Counter(macs / peak * 100, Counter::kIsRate);
}

/// Decode as a model does it: one matrix of [1536, 1536] after another, each multiplied in its own parallel region.
void decode_layers(benchmark::State& state, DType dtype) {
  constexpr int64_t kMatrices = 48;
  constexpr int64_t kCols = 1536;
  const Tensor panel = repeated_weights(dtype, kCols, kCols);
  std::vector<PackedMatrix> weights;
  {
    const SharedPages huge;
    for (int64_t i = 0; i < kMatrices; ++i) weights.push_back(PackedMatrix::pack(panel, pool()));
  }
  const std::vector<float> x = testing::random_activations(kCols, 3);
  std::vector<float> y(static_cast<size_t>(kCols));
  for (auto _ : state) {
    for (const PackedMatrix& weight : weights) {
      Activations activations(x.data(), 1, kCols);
      const MatmulOutput output{&weight, y.data()};
      matmul(activations, {&output, 1}, pool());
    }
    benchmark::DoNotOptimize(y.data());
  }
  state.counters["GB/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * kMatrices * weights[0].bytes()) * 1e-9, benchmark::Counter::kIsRate);
}

void pack(benchmark::State& state, DType dtype) {
  const Tensor weights = repeated_weights(dtype, 32768, 1536);
  for (auto _ : state) benchmark::DoNotOptimize(PackedMatrix::pack(weights, pool()));
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(weights.bytes()) * 1e-9,
                         benchmark::Counter::kIsRate);
}

void empty_region(benchmark::State& state) {
  for (auto _ : state) pool().parallel_for(pool().threads(), [](int64_t, int) {});
}

/// The roof of decode, to be run in between: --benchmark_enable_random_interleaving=true --benchmark_repetitions=5
void read_memory(benchmark::State& state) {
  ReadProbe probe;
  for (auto _ : state) probe.bytes_per_s(pool());
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(ReadProbe::kBytes) * 1e-9,
                         benchmark::Counter::kIsRate);
}

void register_all() {
  benchmark::AddCustomContext("slipring target", current_target());
  benchmark::AddCustomContext("threads", std::to_string(pool().threads()));
  benchmark::AddCustomContext("read GB/s", std::to_string(roof().read_bytes_per_s * 1e-9));
  benchmark::AddCustomContext("float GMAC/s", std::to_string(roof().float_macs_per_s * 1e-9));
  benchmark::AddCustomContext("quantised GMAC/s", std::to_string(roof().quantised_macs_per_s * 1e-9));
  benchmark::RegisterBenchmark("parallel_for/empty", empty_region)->UseRealTime();
  benchmark::RegisterBenchmark("read", read_memory)->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const DType dtype : testing::weight_types()) {
    const std::string name(to_string(dtype));
    const auto add = [&](const std::string& kind, auto function) {
      benchmark::RegisterBenchmark((kind + "/" + name).c_str(), function)->UseRealTime()->Unit(benchmark::kMillisecond);
    };
    add("decode", [dtype](benchmark::State& state) { multiply(state, dtype, 65536, 1536, 1); });
    add("decode_layers", [dtype](benchmark::State& state) { decode_layers(state, dtype); });
    add("verify5", [dtype](benchmark::State& state) { multiply(state, dtype, 65536, 1536, 5); });
    add("verify8", [dtype](benchmark::State& state) { multiply(state, dtype, 65536, 1536, 8); });
    add("prefill512", [dtype](benchmark::State& state) { multiply(state, dtype, 4608, 1536, 512); });
    add("prefill512_long_rows", [dtype](benchmark::State& state) { multiply(state, dtype, 1536, 4608, 512); });
    add("pack", [dtype](benchmark::State& state) { pack(state, dtype); });
  }
}

}  // namespace
}  // namespace slipring

int main(int argc, char** argv) {
  slipring::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
