// Sixteen float lanes, the unit that every kernel's arithmetic is written in: one AVX-512 register, two AVX2 registers,
// or a plain array. The same operations in the same order on every target, so the same bits. Included once a target.
#if defined(SLIPRING_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPRING_KERNELS_LANES_INL_H_
#undef SLIPRING_KERNELS_LANES_INL_H_
#else
#define SLIPRING_KERNELS_LANES_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <hwy/highway.h>

#include "tensor/half.h"

HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

inline constexpr int kLanes = 16;

/// Element types as they lie in a cache.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL

struct Lanes {
  __m512 v;
};

HWY_INLINE Lanes Zero() {
  return {_mm512_setzero_ps()};
}
HWY_INLINE Lanes Set(float x) {
  return {_mm512_set1_ps(x)};
}
HWY_INLINE Lanes Load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
HWY_INLINE Lanes Load(const F16* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
HWY_INLINE Lanes Load(const BF16* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
HWY_INLINE void Store(Lanes a, float* p) {
  _mm512_storeu_ps(p, a.v);
}
HWY_INLINE Lanes Add(Lanes a, Lanes b) {
  return {_mm512_add_ps(a.v, b.v)};
}
HWY_INLINE Lanes Sub(Lanes a, Lanes b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
HWY_INLINE Lanes Mul(Lanes a, Lanes b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
HWY_INLINE Lanes Div(Lanes a, Lanes b) {
  return {_mm512_div_ps(a.v, b.v)};
}
/// a * b + c, rounded once.
HWY_INLINE Lanes Fma(Lanes a, Lanes b, Lanes c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
/// The larger lane; b where either is NaN.
HWY_INLINE Lanes Max(Lanes a, Lanes b) {
  return {_mm512_max_ps(a.v, b.v)};
}
/// The smaller lane; b where either is NaN.
HWY_INLINE Lanes Min(Lanes a, Lanes b) {
  return {_mm512_min_ps(a.v, b.v)};
}
/// a < b ? yes : no, lane by lane.
HWY_INLINE Lanes SelectLess(Lanes a, Lanes b, Lanes yes, Lanes no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
HWY_INLINE Lanes Abs(Lanes a) {
  return {_mm512_abs_ps(a.v)};
}
/// |magnitude| with the sign of `sign`.
HWY_INLINE Lanes CopySign(Lanes magnitude, Lanes sign) {
  const __m512i mask = _mm512_set1_epi32(INT32_MIN);
  return {_mm512_castsi512_ps(
      _mm512_ternarylogic_epi32(mask, _mm512_castps_si512(sign.v), _mm512_castps_si512(magnitude.v), 0xCA))};
}
/// To the nearest integer, ties to even.
HWY_INLINE Lanes Round(Lanes a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/// 2^a for integers a in [-126, 127].
HWY_INLINE Lanes Pow2(Lanes a) {
  const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(a.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}
/// Lanes i and i + 8 added, and so on down to one: the order of every sum over lanes.
HWY_INLINE float SumOfLanes(Lanes a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
HWY_INLINE float MaxOfLanes(Lanes a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

#elif HWY_TARGET == HWY_AVX2

struct Lanes {
  __m256 lo, hi;
};

HWY_INLINE Lanes Zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
HWY_INLINE Lanes Set(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
HWY_INLINE Lanes Load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
HWY_INLINE Lanes Load(const F16* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
HWY_INLINE __m256 LoadEight(const BF16* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
HWY_INLINE Lanes Load(const BF16* p) {
  return {LoadEight(p), LoadEight(p + 8)};
}
HWY_INLINE void Store(Lanes a, float* p) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
HWY_INLINE Lanes Add(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
HWY_INLINE Lanes Sub(Lanes a, Lanes b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
HWY_INLINE Lanes Mul(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
HWY_INLINE Lanes Div(Lanes a, Lanes b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
HWY_INLINE Lanes Fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
HWY_INLINE Lanes Max(Lanes a, Lanes b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
HWY_INLINE Lanes Min(Lanes a, Lanes b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
HWY_INLINE Lanes SelectLess(Lanes a, Lanes b, Lanes yes, Lanes no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
HWY_INLINE Lanes Abs(Lanes a) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
HWY_INLINE Lanes CopySign(Lanes magnitude, Lanes sign) {
  const __m256 mask = _mm256_set1_ps(-0.0F);
  return {_mm256_or_ps(_mm256_andnot_ps(mask, magnitude.lo), _mm256_and_ps(mask, sign.lo)),
          _mm256_or_ps(_mm256_andnot_ps(mask, magnitude.hi), _mm256_and_ps(mask, sign.hi))};
}
HWY_INLINE Lanes Round(Lanes a) {
  return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
HWY_INLINE __m256 PowTwoOfEight(__m256 a) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127)), 23));
}
HWY_INLINE Lanes Pow2(Lanes a) {
  return {PowTwoOfEight(a.lo), PowTwoOfEight(a.hi)};
}
HWY_INLINE float SumOfLanes(Lanes a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
HWY_INLINE float MaxOfLanes(Lanes a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

#else  // the plain definition

struct Lanes {
  float v[kLanes];
};

template <class Function>
HWY_INLINE Lanes EachLane(Function function) {
  Lanes out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = function(i);
  return out;
}
HWY_INLINE Lanes Set(float x) {
  return EachLane([&](int) { return x; });
}
HWY_INLINE Lanes Zero() {
  return Set(0.0F);
}
HWY_INLINE Lanes Load(const float* p) {
  return EachLane([&](int i) { return p[i]; });
}
HWY_INLINE Lanes Load(const F16* p) {
  return EachLane([&](int i) { return f32_from_f16(p[i].bits); });
}
HWY_INLINE Lanes Load(const BF16* p) {
  return EachLane([&](int i) { return f32_from_bf16(p[i].bits); });
}
HWY_INLINE void Store(Lanes a, float* p) {
  std::memcpy(p, a.v, sizeof(a.v));
}
HWY_INLINE Lanes Add(Lanes a, Lanes b) {
  return EachLane([&](int i) { return a.v[i] + b.v[i]; });
}
HWY_INLINE Lanes Sub(Lanes a, Lanes b) {
  return EachLane([&](int i) { return a.v[i] - b.v[i]; });
}
HWY_INLINE Lanes Mul(Lanes a, Lanes b) {
  return EachLane([&](int i) { return a.v[i] * b.v[i]; });
}
HWY_INLINE Lanes Div(Lanes a, Lanes b) {
  return EachLane([&](int i) { return a.v[i] / b.v[i]; });
}
HWY_INLINE Lanes Fma(Lanes a, Lanes b, Lanes c) {
  return EachLane([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
HWY_INLINE Lanes Max(Lanes a, Lanes b) {
  return EachLane([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
HWY_INLINE Lanes Min(Lanes a, Lanes b) {
  return EachLane([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
HWY_INLINE Lanes SelectLess(Lanes a, Lanes b, Lanes yes, Lanes no) {
  return EachLane([&](int i) { return a.v[i] < b.v[i] ? yes.v[i] : no.v[i]; });
}
HWY_INLINE Lanes Abs(Lanes a) {
  return EachLane([&](int i) { return std::fabs(a.v[i]); });
}
HWY_INLINE Lanes CopySign(Lanes magnitude, Lanes sign) {
  return EachLane([&](int i) { return std::copysign(magnitude.v[i], sign.v[i]); });
}
HWY_INLINE Lanes Round(Lanes a) {
  return EachLane([&](int i) { return std::nearbyint(a.v[i]); });
}
HWY_INLINE Lanes Pow2(Lanes a) {
  return EachLane([&](int i) {
    const int exponent = std::isnan(a.v[i]) ? 0 : static_cast<int>(a.v[i]);
    return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
  });
}
HWY_INLINE float SumOfLanes(Lanes a) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
  }
  return a.v[0];
}
HWY_INLINE float MaxOfLanes(Lanes a) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
  }
  return a.v[0];
}

#endif

/// The first `count` < 16 elements, zeros behind them; reads no further.
template <class T>
HWY_INLINE Lanes LoadFirst(const T* p, int64_t count) {
  T padded[kLanes] = {};
  std::memcpy(padded, p, static_cast<size_t>(count) * sizeof(T));
  return Load(padded);
}
HWY_INLINE void StoreFirst(Lanes a, int64_t count, float* p) {
  float all[kLanes];
  Store(a, all);
  std::memcpy(p, all, static_cast<size_t>(count) * sizeof(float));
}
/// 0, 1, ... 15
HWY_INLINE Lanes LaneNumbers() {
  static constexpr float kNumbers[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return Load(kNumbers);
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
