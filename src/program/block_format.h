// How a file of weights holds a quantised matrix, so that ONNX operators and slipring's kernels both read it exactly.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include <slipring/dtype.h>

#include "kernels/packed_layout.h"
#include "kernels/source_blocks.h"

namespace slipring {

/// A quantised matrix NAME [rows, cols] is up to five tensors, with n = cols / size and g = cols / group:
///
///   NAME.blocks  U8   [rows, n, size * bits / 8]  an unsigned element a column; of two in a byte the first is low
///   NAME.d       F16  [rows, g]                   F32 where F16 does not hold it (MXFP4, IQ3_XXS, IQ2_S)
///   NAME.s       I8   [rows, n]                   where there are sub-scales
///   NAME.dmin    F16  [rows, g]                   where there are minima
///   NAME.m       I8   [rows, n]                   where there are sub-minima
///
/// An element e stands for scale * (e - zero) + added, where scale is d, or d * s; and added is 0 without minima,
/// center * scale + dmin with minima alone, center * scale - dmin * m with sub-minima. All products are exact in
/// float32.
struct BlockFormat {
  int bits = 8;    ///< of an element: 4 where all fit, else 8
  int size = 32;   ///< columns that share a scale: 16 or 32
  int group = 32;  ///< columns that share d: 32, or 256 with sub-scales
  int center = 0;
  bool wide_d = false;
  bool sub_scales = false;
  bool minima = false;
  bool sub_minima = false;

  int zero() const noexcept { return bits == 4 ? 8 : 128; }
  int64_t block_bytes() const noexcept { return int64_t{size} * bits / 8; }
  int64_t groups(int64_t cols) const noexcept { return cols / group; }
  int64_t blocks(int64_t cols) const noexcept { return cols / size; }
};

/// Nothing for a type without a kernel, and for plain types.
std::optional<BlockFormat> block_format(DType dtype);

/// One group of a row, as the file has it.
struct BlockGroup {
  std::array<uint8_t, 256> elements;  ///< [group]
  float d;
  std::array<int8_t, 16> s;  ///< [group / size]
  uint16_t dmin;             ///< float16 bits
  std::array<int8_t, 16> m;  ///< [group / size]
};

/// Between the kernels' form of a type's blocks and the file's. Threads: const use from any number.
class BlockCodec {
 public:
  /// @pre block_format(dtype) is there
  explicit BlockCodec(DType dtype);

  const BlockFormat& format() const noexcept { return format_; }
  BlockGroup to_file(const SourceBlock& block) const;
  /// The bits that to_file() was given, but for MXFP4's second zero.
  /// @throws Error{bad_file} for elements or scales that the type has none of
  SourceBlock from_file(const BlockGroup& group) const;

 private:
  [[noreturn]] void damaged(const char* what) const;

  DType dtype_;
  const PackedLayout& layout_;
  BlockFormat format_;
  std::array<uint8_t, 256> element_of_{};  // by the kernels' code
  std::array<int16_t, 256> code_of_{};     // by the file's element; -1: there is none
};

}  // namespace slipring
