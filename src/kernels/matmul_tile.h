// The inner kernels of matmul(): one tile of 16 weight rows times a few rows of activations.
#pragma once

#include <cstdint>

#include "kernels/packed_matrix.h"
#include "kernels/quantised_activations.h"

namespace slipring {

/// One call's work. out[m][lane] = sum over k of x[m][k] * w[lane][k]; out is [rows][16].
///
/// Float weights, the definition: two partial sums, even and odd k, each a chain of fused multiply-adds in the order of
/// k; then even + odd.
/// Quantised weights: for each block of 32 in order, with exact integer dots d of the block or of its halves:
///   one scale:   sum = fma(d * scale, x.scale, sum)
///   two scales:  sum = fma(fma(d1, scale1, d0 * scale0), x.scale, sum)
///   minima:      then, for each sub-block, sum = fma(min, -(x.scale * sum of x.q over it), sum)
/// All targets do exactly this; float32 throughout.
using FloatTile = void (*)(const uint8_t* tile, int64_t cols, const float* x, int64_t stride, int64_t rows, float* out);
using QuantisedTile = void (*)(const uint8_t* tile, int64_t cols, const ActivationBlocks& x, int64_t rows, float* out);

/// Kernels of the current target; x of a float tile is [cols][stride], see Activations::interleaved().
FloatTile float_tile(DType dtype);
QuantisedTile quantised_tile(DType dtype);

/// Where quantised_tile() looks, one a source file: nullptr for the types of the others.
QuantisedTile quantised_tile_simple(DType dtype);
QuantisedTile quantised_tile_super(DType dtype);
QuantisedTile quantised_tile_table(DType dtype);

/// The scalar twins: the definition above in plain loops.
void float_tile_scalar(DType dtype, const uint8_t* tile, int64_t cols, const float* x, int64_t stride, int64_t rows,
                       float* out);
void quantised_tile_scalar(DType dtype, const uint8_t* tile, int64_t cols, const ActivationBlocks& x, int64_t rows,
                           float* out);

}  // namespace slipring
