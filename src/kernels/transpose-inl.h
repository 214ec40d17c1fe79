// Squares of sixteen times sixteen floats: turned round, and summed along their rows.
#if defined(SLIPRING_KERNELS_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPRING_KERNELS_TRANSPOSE_INL_H_
#undef SLIPRING_KERNELS_TRANSPOSE_INL_H_
#else
#define SLIPRING_KERNELS_TRANSPOSE_INL_H_
#endif

#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL

/// Lane j of row i becomes lane i of row j.
HWY_INLINE void Transpose(Lanes (&square)[kLanes]) {
  __m512 t[kLanes];
  // 4 x 4 inside the 128-bit blocks of four neighbouring rows: block b of t[4 g + c] is column 4 b + c, rows 4 g ...
  for (int g = 0; g < kLanes; g += 4) {
    const __m512 low01 = _mm512_unpacklo_ps(square[g].v, square[g + 1].v);
    const __m512 high01 = _mm512_unpackhi_ps(square[g].v, square[g + 1].v);
    const __m512 low23 = _mm512_unpacklo_ps(square[g + 2].v, square[g + 3].v);
    const __m512 high23 = _mm512_unpackhi_ps(square[g + 2].v, square[g + 3].v);
    t[g] = _mm512_shuffle_ps(low01, low23, 0x44);
    t[g + 1] = _mm512_shuffle_ps(low01, low23, 0xEE);
    t[g + 2] = _mm512_shuffle_ps(high01, high23, 0x44);
    t[g + 3] = _mm512_shuffle_ps(high01, high23, 0xEE);
  }
  // Then 4 x 4 of the blocks.
  for (int c = 0; c < 4; ++c) {
    const __m512 even01 = _mm512_shuffle_f32x4(t[c], t[4 + c], 0x88);
    const __m512 odd01 = _mm512_shuffle_f32x4(t[c], t[4 + c], 0xDD);
    const __m512 even23 = _mm512_shuffle_f32x4(t[8 + c], t[12 + c], 0x88);
    const __m512 odd23 = _mm512_shuffle_f32x4(t[8 + c], t[12 + c], 0xDD);
    square[c].v = _mm512_shuffle_f32x4(even01, even23, 0x88);
    square[8 + c].v = _mm512_shuffle_f32x4(even01, even23, 0xDD);
    square[4 + c].v = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
    square[12 + c].v = _mm512_shuffle_f32x4(odd01, odd23, 0xDD);
  }
}

/// Lane i is SumOfLanes of row i of `square` [16, 16].
HWY_INLINE Lanes SumsOfSixteen(const float* square) {
  const auto row = [square](int i) HWY_ATTR { return _mm512_loadu_ps(square + i * kLanes); };
  // Each step adds halves and puts two rows into one register; rows are taken so that they come out in order.
  const auto halves = [&](int i) HWY_ATTR {
    const __m512 a = row(i);
    const __m512 b = row(i + 4);
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  };
  const auto quarters = [&](int i) HWY_ATTR {  // blocks: rows i, i + 4, i + 8, i + 12
    const __m512 a = halves(i);
    const __m512 b = halves(i + 8);
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
  };
  const auto pairs = [&](int i) HWY_ATTR {
    const __m512 a = quarters(i);
    const __m512 b = quarters(i + 1);
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE));
  };
  const __m512 a = pairs(0);
  const __m512 b = pairs(2);
  return {_mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD))};
}

#elif HWY_TARGET == HWY_AVX2

HWY_INLINE void TransposeEight(__m256 (&s)[8]) {
  __m256 t[8];
  for (int g = 0; g < 8; g += 4) {
    const __m256 low01 = _mm256_unpacklo_ps(s[g], s[g + 1]);
    const __m256 high01 = _mm256_unpackhi_ps(s[g], s[g + 1]);
    const __m256 low23 = _mm256_unpacklo_ps(s[g + 2], s[g + 3]);
    const __m256 high23 = _mm256_unpackhi_ps(s[g + 2], s[g + 3]);
    t[g] = _mm256_shuffle_ps(low01, low23, 0x44);
    t[g + 1] = _mm256_shuffle_ps(low01, low23, 0xEE);
    t[g + 2] = _mm256_shuffle_ps(high01, high23, 0x44);
    t[g + 3] = _mm256_shuffle_ps(high01, high23, 0xEE);
  }
  for (int c = 0; c < 4; ++c) {
    s[c] = _mm256_permute2f128_ps(t[c], t[4 + c], 0x20);
    s[4 + c] = _mm256_permute2f128_ps(t[c], t[4 + c], 0x31);
  }
}

HWY_INLINE void Transpose(Lanes (&square)[kLanes]) {
  __m256 quarter[4][8];  // rows 0-7 low, rows 0-7 high, rows 8-15 low, rows 8-15 high
  for (int i = 0; i < 8; ++i) {
    quarter[0][i] = square[i].lo;
    quarter[1][i] = square[i].hi;
    quarter[2][i] = square[8 + i].lo;
    quarter[3][i] = square[8 + i].hi;
  }
  for (auto& q : quarter) TransposeEight(q);
  for (int i = 0; i < 8; ++i) {
    square[i] = {quarter[0][i], quarter[2][i]};
    square[8 + i] = {quarter[1][i], quarter[3][i]};
  }
}

/// SumOfLanes of eight rows, in order.
HWY_INLINE __m256 SumsOfEight(const float* square) {
  const auto row = [square](int i) HWY_ATTR {
    return _mm256_add_ps(_mm256_loadu_ps(square + i * kLanes), _mm256_loadu_ps(square + i * kLanes + 8));
  };
  const auto quarters = [&](int i) HWY_ATTR {
    const __m256 a = row(i);
    const __m256 b = row(i + 4);
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  };
  const auto pairs = [&](int i) HWY_ATTR {
    const __m256 a = quarters(i);
    const __m256 b = quarters(i + 1);
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xEE));
  };
  const __m256 a = pairs(0);
  const __m256 b = pairs(2);
  return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xDD));
}

HWY_INLINE Lanes SumsOfSixteen(const float* square) {
  return {SumsOfEight(square), SumsOfEight(square + 8 * kLanes)};
}

#else

HWY_INLINE void Transpose(Lanes (&square)[kLanes]) {
  for (int i = 0; i < kLanes; ++i) {
    for (int j = 0; j < i; ++j) std::swap(square[i].v[j], square[j].v[i]);
  }
}

HWY_INLINE Lanes SumsOfSixteen(const float* square) {
  return EachLane([&](int i) { return SumOfLanes(Load(square + i * kLanes)); });
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
