// The row-wise and element-wise kernels at the widths of real models: GB/s read and written.
#include <benchmark/benchmark.h>
#include <vector>

#include "kernels/elementwise.h"

namespace slipring {
namespace {

/// Runs `kernel` on rows x cols floats; `streams` arrays of that size are read or written.
template <class Kernel>
void run(benchmark::State& state, int streams, const Kernel& kernel) {
  const int64_t rows = state.range(0);
  const int64_t cols = state.range(1);
  std::vector<float> x(static_cast<size_t>(rows * cols), 0.5F);
  std::vector<float> y(x.size(), 0.25F);
  std::vector<float> out(x.size());
  ThreadPool pool(1);
  for (auto _ : state) {
    kernel(x.data(), y.data(), rows, cols, out.data(), pool);
    benchmark::ClobberMemory();
  }
  const double bytes = 4.0 * streams * static_cast<double>(rows * cols) * static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsRate);
}

void rms_norm_rows(benchmark::State& state) {
  run(state, 2, [](const float* x, const float* y, int64_t rows, int64_t cols, float* out, ThreadPool& pool) {
    rms_norm(x, y, 1e-6F, rows, cols, out, pool);
  });
}
void silu_gate(benchmark::State& state) {
  run(state, 3, [](const float* x, const float* y, int64_t rows, int64_t cols, float* out, ThreadPool& pool) {
    gated_activation(Activation::silu, x, y, rows * cols, out, pool);
  });
}
void gelu_tanh_gate(benchmark::State& state) {
  run(state, 3, [](const float* x, const float* y, int64_t rows, int64_t cols, float* out, ThreadPool& pool) {
    gated_activation(Activation::gelu_tanh, x, y, rows * cols, out, pool);
  });
}
void softcap_rows(benchmark::State& state) {
  run(state, 2, [](const float* x, const float*, int64_t rows, int64_t cols, float* out, ThreadPool& pool) {
    softcap(x, 30.0F, rows * cols, out, pool);
  });
}

BENCHMARK(rms_norm_rows)->ArgNames({"rows", "cols"})->Args({1, 640})->Args({512, 1024});
BENCHMARK(silu_gate)->ArgNames({"rows", "cols"})->Args({1, 3072})->Args({512, 3072});
BENCHMARK(gelu_tanh_gate)->ArgNames({"rows", "cols"})->Args({1, 2048})->Args({512, 2048});
BENCHMARK(softcap_rows)->ArgNames({"rows", "cols"})->Args({1, 262144});

}  // namespace
}  // namespace slipring
