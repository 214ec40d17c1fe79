// How a PackedMatrix lies in memory, per weight format. Shared by packing, the scalar definition and the SIMD kernels.
//
// A tile holds 16 rows; SIMD lane r owns row r. Float types: [cols][16] elements. Quantised types: first the scales of
// the whole tile, padded to 64 bytes, then for each block of 32 columns its planes. A block is 8 groups of 4
// consecutive columns; "word" (r, j) below is the 4 bytes of row r, group j, one unsigned integer a column:
//
//   8-bit plane   8 vectors of 64 bytes; vector j, lane r = word (r, j)
//   4-bit plane   4 vectors; vector v, lane r = word (r, v) | word (r, v + 4) << 4
//   2-bit plane   2 vectors; vector v, lane r = word (r, 4 v) | word (r, 4 v + 1) << 2 | ... << 6
//   1-bit plane   1 vector; lane r = word (r, 0) | word (r, 1) << 1 | ... << 7
//
// A format has a low plane and perhaps a high one with the integers' upper bits. The value of an integer q is
// scale * (q - offset) - min, with scale and min per row and sub-block of 16 or 32 columns; or scale * table[q].
#pragma once

#include <array>
#include <cstdint>

#include <slipring/dtype.h>

namespace slipring {

inline constexpr int kTileRows = 16;
inline constexpr int kBlock = 32;        ///< columns that share one scale of the activations
inline constexpr int kSuperBlock = 256;  ///< columns that share d (and dmin) in the K formats

enum class Scales : uint8_t {
  f16,            ///< [blocks][16] f16
  f16_min,        ///< [blocks][2][16] f16: scale, then the number added (so min is its negative)
  e8m0,           ///< [blocks][16] exponents: 2^(e - 128)
  super,          ///< per 256: [16] f16 d, then [8][32 / sub][16] signed bytes s; scale = d * s
  super_min,      ///< per 256: [16] f16 d, [16] f16 dmin, then [8][2][16] bytes: s, m; scale = d * s, min = dmin * m
  super_nibbles,  ///< per 256: [16] f16 d, [16] f16 dmin, then [8][2][16] bytes s | m << 4, one for each 16 columns
};

enum class Table : uint8_t { none, iq4_nl, mxfp4, iq3_s, iq3_xxs, iq2_s };

struct PackedLayout {
  int low_bits;   ///< 8, 4 or 2
  int high_bits;  ///< 0, 1 or 2
  int sub_block;  ///< columns that share a scale: 16 or 32
  Scales scales;
  int offset;  ///< subtracted from q; a power of two or 0
  Table table = Table::none;
  int divisor = 1;  ///< of d; a power of two

  constexpr bool has_min() const {
    return scales == Scales::f16_min || scales == Scales::super_min || scales == Scales::super_nibbles;
  }
  constexpr bool is_super() const {
    return scales == Scales::super || scales == Scales::super_min || scales == Scales::super_nibbles;
  }
  constexpr int subs() const { return kBlock / sub_block; }
  constexpr int plane_bytes() const { return (low_bits + high_bits) * 64; }  ///< of one block
  /// Bytes of the scales of one block, or of one super-block where there are such.
  constexpr int scale_bytes() const {
    switch (scales) {
      case Scales::f16:
        return 32;
      case Scales::f16_min:
        return 64;
      case Scales::e8m0:
        return 16;
      case Scales::super:
        return 32 + 8 * subs() * 16;
      case Scales::super_min:
      case Scales::super_nibbles:
        return 64 + 8 * 2 * 16;
    }
    return 0;
  }
  constexpr int64_t scales_per_tile(int64_t cols) const {
    const int64_t bytes = cols / (is_super() ? kSuperBlock : kBlock) * scale_bytes();
    return (bytes + 63) / 64 * 64;
  }
  constexpr int64_t tile_bytes(int64_t cols) const { return scales_per_tile(cols) + cols / kBlock * plane_bytes(); }
  constexpr bool operator==(const PackedLayout&) const = default;
};

inline constexpr PackedLayout kQ4_0{4, 0, 32, Scales::f16, 8};
inline constexpr PackedLayout kQ4_1{4, 0, 32, Scales::f16_min, 0};
inline constexpr PackedLayout kQ5_0{4, 1, 32, Scales::f16, 16};
inline constexpr PackedLayout kQ5_1{4, 1, 32, Scales::f16_min, 0};
inline constexpr PackedLayout kQ8_0{8, 0, 32, Scales::f16, 128};
inline constexpr PackedLayout kQ2_K{2, 0, 16, Scales::super_nibbles, 0};
inline constexpr PackedLayout kQ3_K{2, 1, 16, Scales::super, 4};
inline constexpr PackedLayout kQ4_K{4, 0, 32, Scales::super_min, 0};
inline constexpr PackedLayout kQ5_K{4, 1, 32, Scales::super_min, 0};
inline constexpr PackedLayout kQ6_K{4, 2, 16, Scales::super, 32};
inline constexpr PackedLayout kIQ4_NL{4, 0, 32, Scales::f16, 128, Table::iq4_nl};
inline constexpr PackedLayout kIQ4_XS{4, 0, 32, Scales::super, 128, Table::iq4_nl};
inline constexpr PackedLayout kMXFP4{4, 0, 32, Scales::e8m0, 128, Table::mxfp4};
// The formats with codebooks are stored as what their codewords stand for, 3 or 4 bits a column: more bytes than the
// file has (1.25, 1.41 and 1.39 times), in exchange for kernels that look up nothing but 16 levels.
inline constexpr PackedLayout kIQ3_S{4, 0, 32, Scales::super, 128, Table::iq3_s};
inline constexpr PackedLayout kIQ3_XXS{4, 0, 32, Scales::super, 128, Table::iq3_xxs, 4};
inline constexpr PackedLayout kIQ2_S{2, 1, 16, Scales::super, 128, Table::iq2_s, 8};

/// The layout of a quantised type; nullptr where there is no kernel for it.
constexpr const PackedLayout* layout_of(DType dtype) {
  switch (dtype) {
    case DType::Q4_0:
      return &kQ4_0;
    case DType::Q4_1:
      return &kQ4_1;
    case DType::Q5_0:
      return &kQ5_0;
    case DType::Q5_1:
      return &kQ5_1;
    case DType::Q8_0:
      return &kQ8_0;
    case DType::Q2_K:
      return &kQ2_K;
    case DType::Q3_K:
      return &kQ3_K;
    case DType::Q4_K:
      return &kQ4_K;
    case DType::Q5_K:
      return &kQ5_K;
    case DType::Q6_K:
      return &kQ6_K;
    case DType::IQ4_NL:
      return &kIQ4_NL;
    case DType::IQ4_XS:
      return &kIQ4_XS;
    case DType::MXFP4:
      return &kMXFP4;
    case DType::IQ3_S:
      return &kIQ3_S;
    case DType::IQ3_XXS:
      return &kIQ3_XXS;
    case DType::IQ2_S:
      return &kIQ2_S;
    default:
      return nullptr;
  }
}

/// What the 16 codes of a table format stand for. Source: GGUF's kvalues_iq4nl; OCP Microscaling Formats 1.0, E2M1
/// (here doubled, so that they are integers).
constexpr std::array<int8_t, 16> table_values(Table table) {
  switch (table) {
    case Table::iq4_nl:
      return {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    case Table::mxfp4:
      return {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    case Table::iq3_s:  // magnitude code | sign << 3
      return {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};
    case Table::iq3_xxs:
      return {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62};
    case Table::iq2_s:  // magnitude code | sign << 2
      return {8, 25, 43, 0, -8, -25, -43};
    case Table::none:
      break;
  }
  return {};
}

}  // namespace slipring
