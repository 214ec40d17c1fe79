// Quantised blocks to floats and back.
#pragma once

#include <cstdint>

#include <slipring/dtype.h>

namespace slipring {

/// Writes `count` elements as float32: the format's own values, equal to the gguf package's to the last bit.
/// Types: F32, F16, BF16, F64 and every quantised type.
/// @param blocks in the type's layout, aligned to 2 bytes (plain types: to their own size)
/// @pre count is a multiple of the type's block_elements
/// @throws Error{unsupported} for integer types. Threads: any number.
void dequantise(DType dtype, const void* blocks, int64_t count, float* out);

/// True for the types that quantise() writes: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K,
/// Q6_K.
bool can_quantise(DType dtype) noexcept;

/// Writes `count` floats as blocks, with scales searched for a small squared error (docs/quantisation.md). The same
/// input gives the same bytes on every machine; each block depends on its own floats alone.
/// @param x finite floats, else the blocks are of no use (the caller checks)
/// @pre count is a multiple of the type's block_elements
/// @throws Error{unsupported} where can_quantise() is false. Threads: any number.
void quantise(DType dtype, const float* x, int64_t count, void* blocks);

}  // namespace slipring
