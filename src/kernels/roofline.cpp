#include "kernels/roofline.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/roofline.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first: it includes this file once a target.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <hwy/highway.h>
#include <vector>

#include "tensor/shared_pages.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET == HWY_AVX3_DL
#pragma GCC target("avx512vnni")
#endif
namespace slipring {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Reads `bytes` (a multiple of 512) and returns something that depends on all of them.
uint32_t ReadAll(const uint8_t* data, size_t bytes) {
  const hn::ScalableTag<uint32_t> d;
  constexpr size_t kVectors = 8;
  const size_t step = hn::Lanes(d) * sizeof(uint32_t);
  auto sums = hn::Zero(d);
  for (size_t i = 0; i + kVectors * step <= bytes; i += kVectors * step) {
    for (size_t line = 0; line < kVectors * step; line += 64) __builtin_prefetch(data + i + 8192 + line, 0, 2);
    for (size_t v = 0; v < kVectors; ++v) {
      sums = hn::Xor(sums, hn::LoadU(d, reinterpret_cast<const uint32_t*>(data + i + v * step)));
    }
  }
  return static_cast<uint32_t>(hn::GetLane(hn::SumOfLanes(d, sums)));
}

constexpr size_t kChains = 12;  ///< independent sums: more than latency times units

/// Returns the multiply-adds done.
double FloatLoop(size_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 1.0F - *sink);
  const auto b = hn::Set(d, *sink);
  hn::Vec<decltype(d)> sums[kChains];
  for (size_t i = 0; i < kChains; ++i)
    sums[i] = hn::Set(d, *sink + static_cast<float>(i));  // equal ones would be merged
  for (size_t i = 0; i < rounds; ++i) {
    for (auto& sum : sums) sum = hn::MulAdd(sum, a, b);
  }
  for (auto& sum : sums) *sink += hn::GetLane(sum) * 0.0F;
  return static_cast<double>(rounds * kChains * hn::Lanes(d));
}

double QuantisedLoop(size_t rounds, float* sink) {
#if HWY_TARGET == HWY_AVX3_DL
  const __m512i w = _mm512_set1_epi8(static_cast<char>(*sink + 1.0F));
  __m512i sums[kChains];
  for (size_t i = 0; i < kChains; ++i) sums[i] = _mm512_set1_epi32(static_cast<int>(i));  // equal ones would be merged
  for (size_t i = 0; i < rounds; ++i) {
    for (auto& sum : sums) sum = _mm512_dpbusd_epi32(sum, w, w);
  }
  for (auto& sum : sums) *sink += static_cast<float>(_mm512_reduce_add_epi32(sum)) * 0.0F;
  return static_cast<double>(rounds * kChains * 64);
#elif HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  // Per multiply: one pair dot, one 16-bit sum; the widening is shared by several in the kernels.
  const hn::ScalableTag<int16_t> d;
  const auto w = hn::Set(d, static_cast<int16_t>(*sink + 257.0F));
  hn::Vec<decltype(d)> sums[kChains];
  for (size_t i = 0; i < kChains; ++i) sums[i] = hn::Set(d, static_cast<int16_t>(i));
  for (size_t i = 0; i < rounds; ++i) {
    for (auto& sum : sums) {
#if HWY_TARGET == HWY_AVX2
      sum.raw = _mm256_add_epi16(sum.raw, _mm256_maddubs_epi16(w.raw, sum.raw));
#else
      sum.raw = _mm512_add_epi16(sum.raw, _mm512_maddubs_epi16(w.raw, sum.raw));
#endif
    }
  }
  for (auto& sum : sums) *sink += static_cast<float>(hn::GetLane(sum)) * 0.0F;
  return static_cast<double>(rounds * kChains * hn::Lanes(d) * 2);
#else
  return FloatLoop(rounds, sink);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipring {
namespace {

HWY_EXPORT(ReadAll);
HWY_EXPORT(FloatLoop);
HWY_EXPORT(QuantisedLoop);

/// Rate of one run of `once` on all threads; once(worker index) returns the work it did.
template <class Once>
double rate(ThreadPool& pool, const Once& once) {
  std::vector<double> work(static_cast<size_t>(pool.threads()), 0.0);
  const auto start = std::chrono::steady_clock::now();
  pool.parallel_for(pool.threads(), [&](int64_t i, int) { work[static_cast<size_t>(i)] = once(i); });
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  double total = 0;
  for (const double part : work) total += part;
  return total / elapsed.count();
}

template <class Once>
double best_rate(ThreadPool& pool, int runs, const Once& once) {
  double best = 0;
  for (int run = 0; run < runs; ++run) best = std::max(best, rate(pool, once));
  return best;
}

Tensor filled_with_ones(int64_t bytes) {
  const SharedPages huge;  // as the weights have them: with small pages the look-ups of addresses are what is measured
  Tensor buffer(DType::U8, {bytes});
  std::memset(buffer.raw(), 1, static_cast<size_t>(buffer.bytes()));  // else one shared page of zeros backs it all
  return buffer;
}

}  // namespace

ReadProbe::ReadProbe() : buffer_(filled_with_ones(kBytes)) {}

double ReadProbe::bytes_per_s(ThreadPool& pool) {
  const int64_t part = kBytes / pool.threads() / 4096 * 4096;
  std::atomic<uint32_t> sink{0};
  return rate(pool, [&](int64_t i) {
    sink += HWY_DYNAMIC_DISPATCH(ReadAll)(buffer_.data<uint8_t>() + i * part, static_cast<size_t>(part));
    return static_cast<double>(part);
  });
}

Roofline measure_roofline(ThreadPool& pool) {
  constexpr size_t kRounds = 200000;
  constexpr int kRuns = 8;
  Roofline roof{};
  ReadProbe probe;
  for (int run = 0; run < kRuns; ++run)
    roof.read_bytes_per_s = std::max(roof.read_bytes_per_s, probe.bytes_per_s(pool));
  roof.float_macs_per_s = best_rate(pool, kRuns, [&](int64_t) {
    float value = 0;
    return HWY_DYNAMIC_DISPATCH(FloatLoop)(kRounds, &value) + static_cast<double>(value);
  });
  roof.quantised_macs_per_s = best_rate(pool, kRuns, [&](int64_t) {
    float value = 0;
    return HWY_DYNAMIC_DISPATCH(QuantisedLoop)(kRounds, &value) + static_cast<double>(value);
  });
  return roof;
}

}  // namespace slipring
#endif  // HWY_ONCE
