// GGUF's bytes of a quantised block: what kernels/source_blocks.h reads, written.
#pragma once

#include <cstdint>

#include <slipring/dtype.h>

#include "kernels/source_blocks.h"

namespace slipring {

/// False for the types with codebooks (IQ3_S, IQ3_XXS, IQ2_S): not every row of codes has a codeword.
bool has_gguf_bytes(DType dtype) noexcept;

/// The block whose reading gives `block`: info(dtype).block_bytes bytes at `out`, zeroed before.
/// @pre has_gguf_bytes(dtype), and codes and scales that the type has
void write_gguf_bytes(DType dtype, const SourceBlock& block, uint8_t* out);

}  // namespace slipring
