#include "kernels/quantised_activations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantised_activations.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first: it includes this file once a target.
#include <algorithm>
#include <bit>
#include <cmath>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLanes = HWY_TARGET == HWY_AVX2 ? 8 : 16;

/// The bits of max |x| of one block.
inline uint32_t MaxBits(const float* x) {
  const hn::FixedTag<int32_t, kLanes> di;
  const hn::FixedTag<float, kLanes> df;
  auto most = hn::Zero(di);
  const auto magnitude = hn::Set(di, 0x7FFFFFFF);
  for (size_t i = 0; i < 32; i += kLanes) {
    most = hn::Max(most, hn::And(hn::BitCast(di, hn::LoadU(df, x + i)), magnitude));
  }
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, most)));
}

/// q = round(x * inverse); sums of both halves.
inline void RoundBlock(const float* x, float inverse, int8_t* q, int32_t sums[2]) {
  const hn::FixedTag<float, kLanes> df;
  const hn::FixedTag<int32_t, kLanes> di;
  const hn::Rebind<int8_t, decltype(di)> d8;
  const auto factor = hn::Set(df, inverse);
  for (size_t half = 0; half < 2; ++half) {
    auto total = hn::Zero(di);
    for (size_t i = 16 * half; i < 16 * half + 16; i += kLanes) {
      const auto rounded = hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), factor));
      hn::StoreU(hn::DemoteTo(d8, rounded), d8, q + i);
      total = hn::Add(total, rounded);
    }
    sums[half] = hn::GetLane(hn::SumOfLanes(di, total));
  }
}
#else
inline uint32_t MaxBits(const float* x) {
  uint32_t most = 0;
  for (int i = 0; i < 32; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFU);
  return most;
}

inline void RoundBlock(const float* x, float inverse, int8_t* q, int32_t sums[2]) {
  for (int half = 0; half < 2; ++half) {
    sums[half] = 0;
    for (int i = 16 * half; i < 16 * half + 16; ++i) {
      q[i] = static_cast<int8_t>(std::lrint(x[i] * inverse));
      sums[half] += q[i];
    }
  }
}
#endif

void QuantiseRow(const float* x, int64_t row, QuantisedActivations& out) {
  const int64_t tile = row / QuantisedActivations::kTile;
  const int64_t height = out.height(tile);
  int64_t at = out.tile_start(tile) + row % QuantisedActivations::kTile;
  for (int64_t block = 0; block < out.blocks; ++block, at += height, x += 32) {
    // Compared as integers, NaN above infinity above every number: nothing can hide one.
    const uint32_t most_bits = MaxBits(x);
    const auto most = std::bit_cast<float>(most_bits);
    const bool finite = most_bits < 0x7F800000U;
    const bool usable = finite && most >= 1e-30F;  // below, 127 / most would overflow: zeros then
    const float inverse = usable ? 127.0F / most : 0.0F;
    const float scale = usable ? most / 127.0F : finite ? 0.0F : std::bit_cast<float>(0x7FC00000U);
    int8_t* q = out.q.data<int8_t>() + at * 32;
    int32_t sums[2] = {0, 0};
    if (usable) {
      RoundBlock(x, inverse, q, sums);
    } else {
      std::fill(q, q + 32, int8_t{0});
    }
    const auto i = static_cast<size_t>(at);
    out.scale[i] = scale;
    out.negative_sum[i] = -(sums[0] + sums[1]);
    out.negative_scaled_sum[i] = -(scale * static_cast<float>(sums[0] + sums[1]));
    for (size_t half = 0; half < 2; ++half) {
      out.negative_half_sum[2 * i + half] = -sums[half];
      out.negative_scaled_half_sum[2 * i + half] = -(scale * static_cast<float>(sums[half]));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipring {

HWY_EXPORT(QuantiseRow);

QuantisedActivations::QuantisedActivations(int64_t row_count, int64_t cols)
    : rows(row_count), blocks(cols / 32), q(DType::I8, {row_count, cols}) {
  const auto count = static_cast<size_t>(rows * blocks);
  scale.resize(count);
  negative_sum.resize(count);
  negative_half_sum.resize(2 * count);
  negative_scaled_sum.resize(count);
  negative_scaled_half_sum.resize(2 * count);
}

void quantise_row(const float* x, int64_t row, QuantisedActivations& out) {
  HWY_DYNAMIC_DISPATCH(QuantiseRow)(x, row, out);
}

void quantise_row_scalar(const float* x, int64_t row, QuantisedActivations& out) {
  HWY_STATIC_DISPATCH(QuantiseRow)(x, row, out);
}

void residual_row(const float* x, int64_t row, const QuantisedActivations& quantised, float* out) {
  const int64_t tile = row / QuantisedActivations::kTile;
  const int64_t height = quantised.height(tile);
  int64_t at = quantised.tile_start(tile) + row % QuantisedActivations::kTile;
  for (int64_t block = 0; block < quantised.blocks; ++block, at += height) {
    const float scale = quantised.scale[static_cast<size_t>(at)];
    const int8_t* q = quantised.q.data<int8_t>() + at * 32;
    for (int i = 0; i < 32; ++i) out[block * 32 + i] = std::fma(-scale, static_cast<float>(q[i]), x[block * 32 + i]);
  }
}

}  // namespace slipring
#endif  // HWY_ONCE
