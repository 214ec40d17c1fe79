// The weights of a packed tile as vectors, per target: scales, minima and 4-column groups of small integers. Included
// by matmul_quantised-inl.h inside Highway's re-inclusion. See packed_layout.h for the bytes.
#if defined(SLIPRING_UNPACK_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPRING_UNPACK_WEIGHTS_INL_H_
#undef SLIPRING_UNPACK_WEIGHTS_INL_H_
#else
#define SLIPRING_UNPACK_WEIGHTS_INL_H_
#endif

#include <array>
#include <hwy/highway.h>

#include "kernels/packed_layout.h"

// The targets that have kernels of their own; the others run the definition (matmul_scalar.cpp).
#undef SLIPRING_QUANTISED_SIMD
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define SLIPRING_QUANTISED_SIMD 1
#else
#define SLIPRING_QUANTISED_SIMD 0
#endif

#if SLIPRING_QUANTISED_SIMD
HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr bool kVnni = HWY_TARGET == HWY_AVX3_DL;
constexpr size_t kLanes = HWY_TARGET == HWY_AVX2 ? 8 : 16;
constexpr size_t kHalves = 16 / kLanes;  ///< vectors for the 16 rows of a tile
using DF = hn::FixedTag<float, kLanes>;
using DI = hn::FixedTag<int32_t, kLanes>;
using DU = hn::FixedTag<uint32_t, kLanes>;
using DB = hn::FixedTag<uint8_t, 4 * kLanes>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;  ///< 4 columns a lane, one a byte

HWY_INLINE VF LoadF16(const uint8_t* p) {
#if HWY_TARGET == HWY_AVX2
  return VF{_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
#else
  return VF{_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
#endif
}
HWY_INLINE VI LoadU8(const uint8_t* p) {
  return hn::PromoteTo(DI(), hn::LoadU(hn::Rebind<uint8_t, DI>(), p));
}
HWY_INLINE VI LoadI8(const uint8_t* p) {
  return hn::PromoteTo(DI(), hn::LoadU(hn::Rebind<int8_t, DI>(), reinterpret_cast<const int8_t*>(p)));
}

/// Scales and minima of one half of a tile's rows, block after block in order.
template <PackedLayout L>
class ScaleReader {
 public:
  void Open(const uint8_t* tile, size_t half) {
    at_ = tile;
    half_ = half;
  }

  HWY_INLINE void Next(size_t block) {
    const DF d;
    if constexpr (L.is_super()) {
      if (block % 8 == 0) {
        const uint8_t* header = Half(block / 8 * L.scale_bytes(), 2);
        d_ = LoadF16(header);
        if constexpr (L.divisor != 1) d_ = hn::Mul(d_, hn::Set(d, 1.0F / static_cast<float>(L.divisor)));
        if constexpr (L.has_min()) dmin_ = LoadF16(header + 32);
      }
      const size_t base = block / 8 * L.scale_bytes() + (L.has_min() ? 64 : 32);
      if constexpr (L.scales == Scales::super) {
        for (size_t i = 0; i < L.subs(); ++i) {
          scale[i] = hn::Mul(d_, hn::ConvertTo(d, LoadI8(Half(base + (block % 8 * L.subs() + i) * 16, 1))));
        }
      } else if constexpr (L.scales == Scales::super_min) {
        scale[0] = hn::Mul(d_, hn::ConvertTo(d, LoadU8(Half(base + block % 8 * 32, 1))));
        min[0] = hn::Mul(dmin_, hn::ConvertTo(d, LoadU8(Half(base + block % 8 * 32 + 16, 1))));
      } else {
        for (size_t i = 0; i < 2; ++i) {
          const VI both = LoadU8(Half(base + block % 8 * 32 + 16 * i, 1));
          scale[i] = hn::Mul(d_, hn::ConvertTo(d, hn::And(both, hn::Set(DI(), 15))));
          min[i] = hn::Mul(dmin_, hn::ConvertTo(d, hn::ShiftRight<4>(both)));
        }
      }
    } else if constexpr (L.scales == Scales::e8m0) {
      const VI e = LoadU8(Half(block * 16, 1));
      const VI one = hn::Set(DI(), 1);
      const VI unit = hn::Set(DI(), 0x200000);
      const VI subnormal = hn::Add(unit, hn::IfThenElseZero(hn::Eq(e, one), unit));
      const VI normal = hn::ShiftLeft<23>(hn::Sub(e, one));
      scale[0] = hn::BitCast(d, hn::IfThenElse(hn::Gt(e, one), normal, subnormal));
    } else {
      scale[0] = LoadF16(Half(block * L.scale_bytes(), 2));
      if constexpr (L.has_min()) min[0] = hn::Neg(LoadF16(Half(block * L.scale_bytes() + 32, 2)));
    }
  }

  VF scale[2];
  VF min[2];

 private:
  /// Address of this half's first lane in 16 elements of `bytes` each.
  HWY_INLINE const uint8_t* Half(size_t offset, size_t bytes) const { return at_ + offset + half_ * kLanes * bytes; }

  const uint8_t* at_ = nullptr;
  size_t half_ = 0;
  VF d_;
  VF dmin_;
};

/// True where the dot product takes signed weights (see Dot), so that no offset is left to subtract.
template <PackedLayout L>
constexpr bool kSignedWeights = !kVnni && (L.low_bits == 8 || L.table != Table::none);

/// The table's 16 values as Dot() takes them: signed, or with the offset of 128 added.
template <PackedLayout L>
constexpr std::array<uint8_t, 16> TableCodes() {
  std::array<uint8_t, 16> codes{};
  for (size_t i = 0; i < 16; ++i) {
    codes[i] = static_cast<uint8_t>(table_values(L.table)[i] + (kSignedWeights<L> ? 0 : 128));
  }
  return codes;
}

/// The 8 groups of one block of one half.
template <PackedLayout L>
HWY_INLINE void Unpack(const uint8_t* planes, VU w[8]) {
  const DU du;
  const auto load = [&](size_t vector) {
    return hn::LoadU(du, reinterpret_cast<const uint32_t*>(planes + 64 * vector));
  };
  if constexpr (L.low_bits == 8) {
    for (size_t j = 0; j < 8; ++j) {
      w[j] = load(j);
      if constexpr (kSignedWeights<L>) w[j] = hn::Xor(w[j], hn::Set(du, 0x80808080U));
    }
  } else if constexpr (L.low_bits == 4) {
    const VU mask = hn::Set(du, 0x0F0F0F0FU);
    for (size_t j = 0; j < 4; ++j) {
      const VU both = load(j);
      w[j] = hn::And(both, mask);
      w[j + 4] = hn::And(hn::ShiftRight<4>(both), mask);
    }
  } else {
    const VU mask = hn::Set(du, 0x03030303U);
    for (size_t j = 0; j < 2; ++j) {
      const VU all = load(j);
      w[4 * j] = hn::And(all, mask);
      w[4 * j + 1] = hn::And(hn::ShiftRight<2>(all), mask);
      w[4 * j + 2] = hn::And(hn::ShiftRight<4>(all), mask);
      w[4 * j + 3] = hn::And(hn::ShiftRight<6>(all), mask);
    }
  }
  // The upper bits: bit j (or the two bits from 2 j on) of each byte moved to bit low_bits. A 32-bit shift carries bits
  // over into neighbouring bytes, but only to places that the mask clears.
  if constexpr (L.high_bits == 1) {
    const VU mask = hn::Set(du, 0x01010101U << L.low_bits);
    const VU high = load(L.low_bits);
    const auto add = [&](VU& word, VU shifted) { word = hn::Or(word, hn::And(shifted, mask)); };
    if constexpr (L.low_bits == 4) {
      add(w[0], hn::ShiftLeft<4>(high));
      add(w[1], hn::ShiftLeft<3>(high));
      add(w[2], hn::ShiftLeft<2>(high));
      add(w[3], hn::ShiftLeft<1>(high));
      add(w[4], high);
      add(w[5], hn::ShiftRight<1>(high));
      add(w[6], hn::ShiftRight<2>(high));
      add(w[7], hn::ShiftRight<3>(high));
    } else {
      add(w[0], hn::ShiftLeft<2>(high));
      add(w[1], hn::ShiftLeft<1>(high));
      add(w[2], high);
      add(w[3], hn::ShiftRight<1>(high));
      add(w[4], hn::ShiftRight<2>(high));
      add(w[5], hn::ShiftRight<3>(high));
      add(w[6], hn::ShiftRight<4>(high));
      add(w[7], hn::ShiftRight<5>(high));
    }
  } else if constexpr (L.high_bits == 2) {
    static_assert(L.high_bits != 2 || L.low_bits == 4);
    const VU mask = hn::Set(du, 0x30303030U);
    for (size_t j = 0; j < 2; ++j) {
      const VU high = load(L.low_bits + j);
      w[4 * j] = hn::Or(w[4 * j], hn::And(hn::ShiftLeft<4>(high), mask));
      w[4 * j + 1] = hn::Or(w[4 * j + 1], hn::And(hn::ShiftLeft<2>(high), mask));
      w[4 * j + 2] = hn::Or(w[4 * j + 2], hn::And(high, mask));
      w[4 * j + 3] = hn::Or(w[4 * j + 3], hn::And(hn::ShiftRight<2>(high), mask));
    }
  }
  if constexpr (L.table != Table::none) {
    static constexpr auto kCodes = TableCodes<L>();
    const DB db;
    const auto table = hn::LoadDup128(db, kCodes.data());
    for (size_t j = 0; j < 8; ++j) w[j] = hn::BitCast(du, hn::TableLookupBytes(table, hn::BitCast(db, w[j])));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();
#endif

#endif  // SLIPRING_UNPACK_WEIGHTS_INL_H_
