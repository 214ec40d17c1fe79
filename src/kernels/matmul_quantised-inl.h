// The quantised micro-kernel, per target: included by matmul_quantised_*.cpp inside Highway's re-inclusion.
// unpack_weights-inl.h reads the weights; see packed_layout.h for their bytes and matmul_tile.h for the arithmetic.
#if defined(SLIPRING_MATMUL_QUANTISED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPRING_MATMUL_QUANTISED_INL_H_
#undef SLIPRING_MATMUL_QUANTISED_INL_H_
#else
#define SLIPRING_MATMUL_QUANTISED_INL_H_
#endif

#include <cstring>
#include <hwy/highway.h>

#include "kernels/matmul_tile.h"
#include "kernels/packed_layout.h"
#include "kernels/unpack_weights-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET == HWY_AVX3_DL
#pragma GCC target("avx512vnni")  // part of the target by definition, but Highway 1.0.3 leaves it out
#endif
namespace slipring {
namespace HWY_NAMESPACE {

#if SLIPRING_QUANTISED_SIMD
constexpr size_t kMaxRows = HWY_TARGET == HWY_AVX2 ? 4 : 16;
constexpr size_t kSideBySide = 4;  ///< rows whose chains of dots take turns; measured
/// How far ahead of its reads a kernel asks for the weights. So far that it is the second-level cache that they wait
/// in: the first level cannot track enough outstanding lines to keep up with memory. Measured.
constexpr size_t kPrefetchBytes = 8192;

HWY_INLINE VI Broadcast4(const int8_t* q) {
  int32_t four = 0;
  std::memcpy(&four, q, 4);
  return hn::Set(DI(), four);
}

#if HWY_TARGET == HWY_AVX2
HWY_INLINE VI PairDot(VU w, VI x) {
  return VI{_mm256_maddubs_epi16(w.raw, x.raw)};
}
HWY_INLINE VI SignedPairDot(VU w, VI x) {
  return VI{_mm256_maddubs_epi16(_mm256_abs_epi8(w.raw), _mm256_sign_epi8(x.raw, w.raw))};
}
HWY_INLINE VI Add16(VI a, VI b) {
  return VI{_mm256_add_epi16(a.raw, b.raw)};
}
HWY_INLINE VI AddPairs(VI sum, VI pairs) {
  return VI{_mm256_add_epi32(sum.raw, _mm256_madd_epi16(pairs.raw, _mm256_set1_epi16(1)))};
}
#else
HWY_INLINE VI PairDot(VU w, VI x) {
  return VI{_mm512_maddubs_epi16(w.raw, x.raw)};
}
HWY_INLINE VI SignedPairDot(VU w, VI x) {
  const __mmask64 negative = _mm512_movepi8_mask(w.raw);
  const __m512i with_sign = _mm512_mask_sub_epi8(x.raw, negative, _mm512_setzero_si512(), x.raw);
  return VI{_mm512_maddubs_epi16(_mm512_abs_epi8(w.raw), with_sign)};
}
HWY_INLINE VI Add16(VI a, VI b) {
  return VI{_mm512_add_epi16(a.raw, b.raw)};
}
HWY_INLINE VI AddPairs(VI sum, VI pairs) {
  return VI{_mm512_add_epi32(sum.raw, _mm512_madd_epi16(pairs.raw, _mm512_set1_epi16(1)))};
}
#endif

/// Adds to sums[m] the dots of kGroups groups of 4 columns with row m of x.q (32 bytes a row); exact. The rows take
/// turns, so that their chains of additions run side by side.
template <PackedLayout L, size_t kGroups, size_t kRows>
HWY_INLINE void Dot(const VU* w, const int8_t* q, VI sums[kRows]) {
#if HWY_TARGET == HWY_AVX3_DL
#pragma GCC unroll 8
  for (size_t j = 0; j < kGroups; ++j) {
#pragma GCC unroll 16
    for (size_t m = 0; m < kRows; ++m) {
      sums[m] = VI{_mm512_dpbusd_epi32(sums[m].raw, w[j].raw, Broadcast4(q + 32 * m + 4 * j).raw)};
    }
  }
#else
  if constexpr (kSignedWeights<L>) {
    // |w| <= 128 and |x| <= 127: a pair is at most 32512 and does not saturate.
#pragma GCC unroll 8
    for (size_t j = 0; j < kGroups; ++j) {
#pragma GCC unroll 16
      for (size_t m = 0; m < kRows; ++m) {
        sums[m] = AddPairs(sums[m], SignedPairDot(w[j], Broadcast4(q + 32 * m + 4 * j)));
      }
    }
  } else {
    // Pairs of small products are first summed in 16 bits, as many as surely fit.
    constexpr size_t kMost = (size_t{1} << (L.low_bits + L.high_bits)) - 1;
    constexpr size_t kFit = 32767 / (kMost * 127 * 2);
    constexpr size_t kRun = kFit >= kGroups ? kGroups : kFit >= 4 ? 4 : 2;
    static_assert(kFit >= 2);
#pragma GCC unroll 8
    for (size_t j = 0; j < kGroups; j += kRun) {
#pragma GCC unroll 16
      for (size_t m = 0; m < kRows; ++m) {
        const int8_t* at = q + 32 * m + 4 * j;
        VI pairs = PairDot(w[j], Broadcast4(at));
#pragma GCC unroll 8
        for (size_t i = 1; i < kRun; ++i) pairs = Add16(pairs, PairDot(w[j + i], Broadcast4(at + 4 * i)));
        sums[m] = AddPairs(sums[m], pairs);
      }
    }
  }
#endif
}

template <PackedLayout L>
constexpr int kOffsetShift = L.offset == 128  ? 7
                             : L.offset == 32 ? 5
                             : L.offset == 16 ? 4
                             : L.offset == 8  ? 3
                                              : 2;

/// - offset * sum of x.q: where the integer dot starts.
template <PackedLayout L>
HWY_INLINE VI Start(const int32_t* negative_sum) {
  if constexpr (L.offset == 0 || kSignedWeights<L>) {
    return hn::Zero(DI());
  } else {
    return hn::ShiftLeft<kOffsetShift<L>>(hn::Set(DI(), *negative_sum));
  }
}

/// One block of kRows rows of x, the first of which is (block, row) number `at`.
template <PackedLayout L, size_t kRows>
HWY_INLINE void AddBlock(const VU w[8], const ScaleReader<L>& scales, const ActivationBlocks& x, size_t at,
                         VF sums[kRows]) {
  const DF d;
  const int8_t* q = x.q + at * 32;
  VF scaled[kRows];
  VI dots[kRows];
  if constexpr (L.subs() == 1) {
    for (size_t m = 0; m < kRows; ++m) dots[m] = Start<L>(x.negative_sum + at + m);
    Dot<L, 8, kRows>(w, q, dots);
    for (size_t m = 0; m < kRows; ++m) scaled[m] = hn::Mul(hn::ConvertTo(d, dots[m]), scales.scale[0]);
  } else {
    for (size_t m = 0; m < kRows; ++m) dots[m] = Start<L>(x.negative_half_sum + 2 * (at + m));
    Dot<L, 4, kRows>(w, q, dots);
    for (size_t m = 0; m < kRows; ++m) {
      scaled[m] = hn::Mul(hn::ConvertTo(d, dots[m]), scales.scale[0]);
      dots[m] = Start<L>(x.negative_half_sum + 2 * (at + m) + 1);
    }
    Dot<L, 4, kRows>(w + 4, q + 16, dots);
    for (size_t m = 0; m < kRows; ++m) {
      scaled[m] = hn::MulAdd(hn::ConvertTo(d, dots[m]), scales.scale[1], scaled[m]);
    }
  }
  for (size_t m = 0; m < kRows; ++m) {
    sums[m] = hn::MulAdd(scaled[m], hn::Set(d, x.scale[at + m]), sums[m]);
    if constexpr (L.has_min()) {
      if constexpr (L.subs() == 1) {
        sums[m] = hn::MulAdd(scales.min[0], hn::Set(d, x.negative_scaled_sum[at + m]), sums[m]);
      } else {
        const float* halves = x.negative_scaled_half_sum + 2 * (at + m);
        sums[m] = hn::MulAdd(scales.min[0], hn::Set(d, halves[0]), sums[m]);
        sums[m] = hn::MulAdd(scales.min[1], hn::Set(d, halves[1]), sums[m]);
      }
    }
  }
}

/// kRows rows of x; kTogether of the tile's vectors at a time.
template <PackedLayout L, size_t kRows, size_t kTogether>
void QuantisedRows(const uint8_t* tile, size_t cols, const ActivationBlocks& x, float* out) {
  const DF d;
  const uint8_t* planes = tile + L.scales_per_tile(static_cast<int64_t>(cols));
  const size_t blocks = cols / kBlock;
  const auto stride = static_cast<size_t>(x.stride);
  // The next tile's scales lie between what is fetched for this tile and for the next one.
  for (const uint8_t* line = tile; line < planes; line += 64) __builtin_prefetch(line + kPrefetchBytes, 0, 2);
  for (size_t part = 0; part < kHalves; part += kTogether) {
    ScaleReader<L> scales[kTogether];
    VF sums[kTogether][kRows];
    for (size_t v = 0; v < kTogether; ++v) {
      scales[v].Open(tile, part + v);
      for (size_t m = 0; m < kRows; ++m) sums[v][m] = hn::Zero(d);
    }
    for (size_t block = 0; block < blocks; ++block) {
      const uint8_t* at = planes + block * L.plane_bytes();
      for (int line = 0; line < L.plane_bytes(); line += 64) __builtin_prefetch(at + kPrefetchBytes + line, 0, 2);
      for (size_t v = 0; v < kTogether; ++v) {
        VU w[8];
        Unpack<L>(at + (part + v) * kLanes * 4, w);
        scales[v].Next(block);
        constexpr size_t kSide = kRows <= kSideBySide + 1 ? kRows : kRows == 6 ? 3 : kSideBySide;
#pragma GCC unroll 16
        for (size_t m = 0; m + kSide <= kRows; m += kSide) {
          AddBlock<L, kSide>(w, scales[v], x, block * stride + m, &sums[v][m]);
        }
        if constexpr (constexpr size_t kRest = kRows % kSide; kRest != 0) {
          AddBlock<L, kRest>(w, scales[v], x, block * stride + kRows - kRest, &sums[v][kRows - kRest]);
        }
      }
    }
    for (size_t v = 0; v < kTogether; ++v) {
      for (size_t m = 0; m < kRows; ++m) hn::StoreU(sums[v][m], d, out + m * 16 + (part + v) * kLanes);
    }
  }
}

template <PackedLayout L>
void QuantisedTileOf(const uint8_t* tile, int64_t cols, const ActivationBlocks& activations, int64_t rows, float* out) {
  ActivationBlocks x = activations;
  const auto n = static_cast<size_t>(cols);
  const auto take = [&]<size_t kRows>(std::integral_constant<size_t, kRows>) {
    QuantisedRows<L, kRows, kRows == 1 ? kHalves : 1>(tile, n, x, out);
    rows -= kRows;
    x = x.skip(kRows);
    out += kRows * 16;
  };
  while (rows >= static_cast<int64_t>(kMaxRows)) take(std::integral_constant<size_t, kMaxRows>());
  if (kMaxRows > 8 && rows >= 8) take(std::integral_constant < size_t, kMaxRows < 8 ? kMaxRows : 8 > ());
  // A second pass over the tile would unpack it again: the few rows of a draft or of parallel texts are taken at once.
  switch (rows) {
    case 1:
      return take(std::integral_constant<size_t, 1>());
    case 2:
      return take(std::integral_constant<size_t, 2>());
    case 3:
      return take(std::integral_constant<size_t, 3>());
#if HWY_TARGET != HWY_AVX2
    case 4:
      return take(std::integral_constant<size_t, 4>());
    case 5:
      return take(std::integral_constant<size_t, 5>());
    case 6:
      return take(std::integral_constant<size_t, 6>());
    case 7:
      return take(std::integral_constant<size_t, 7>());
#endif
    default:
      return;
  }
}
#endif

/// The kernel of `kType` on this target; elsewhere than on the targets above, the definition.
template <DType kType>
void QuantisedTileFor(const uint8_t* tile, int64_t cols, const ActivationBlocks& x, int64_t rows, float* out) {
#if SLIPRING_QUANTISED_SIMD
  QuantisedTileOf<*layout_of(kType)>(tile, cols, x, rows, out);
#else
  quantised_tile_scalar(kType, tile, cols, x, rows, out);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#endif  // SLIPRING_MATMUL_QUANTISED_INL_H_
