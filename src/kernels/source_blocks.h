// GGUF's quantised blocks, read into the unsigned integers and scale bytes that packed_layout.h stores.
#pragma once

#include <cstdint>

#include <slipring/dtype.h>

namespace slipring {

/// One source block (32 or 256 columns). `words` holds one unsigned integer a byte, column order. Scale fields are
/// those that the type's Scales kind names; `scale` and `min` are per sub-block.
struct SourceBlock {
  uint32_t words[64];
  uint8_t scale[16];
  uint8_t min[16];
  uint16_t d;
  uint16_t dmin;
};

using ReadBlock = void (*)(const uint8_t* block, SourceBlock& out);

/// The reader of a type that layout_of() knows.
ReadBlock source_reader(DType dtype) noexcept;

}  // namespace slipring
