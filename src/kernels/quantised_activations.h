// Rows of activations as int8, in blocks of 32 with a float scale each.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/packed_matrix.h"

namespace slipring {

/// Rows are grouped into tiles of kActivationTile (the last one smaller, `height` rows); a tile lies as
/// [blocks][height][32], so that a kernel reads one block of all its rows from consecutive memory. The facts of a
/// block lie in the same order, one (or two, for its halves of 16) a block and row. A block is x[i] ~ scale * q[i] with
/// scale = max |x| / 127, q rounded to nearest even; a block whose maximum is not finite has NaN for its scale, so that
/// the results say so. Sums are kept negated, ready to start from.
struct QuantisedActivations {
  static constexpr int64_t kTile = 16;

  QuantisedActivations(int64_t rows, int64_t cols);

  int64_t rows;
  int64_t blocks;  ///< of 32 columns
  Tensor q;        ///< int8
  std::vector<float> scale;
  std::vector<int32_t> negative_sum;            ///< - sum q
  std::vector<int32_t> negative_half_sum;       ///< [2] - sum q over each half
  std::vector<float> negative_scaled_sum;       ///< - scale * sum q
  std::vector<float> negative_scaled_half_sum;  ///< [2]

  /// Index of (block 0, first row) of the tile in the vectors above; times 32 in q.
  int64_t tile_start(int64_t tile) const { return tile * kTile * blocks; }
  int64_t tiles() const { return (rows + kTile - 1) / kTile; }
  int64_t height(int64_t tile) const { return std::min(kTile, rows - tile * kTile); }
};

/// Quantises row `row` of x [cols] into its places.
void quantise_row(const float* x, int64_t row, QuantisedActivations& out);
/// Its definition: plain loops, the same bits.
void quantise_row_scalar(const float* x, int64_t row, QuantisedActivations& out);

/// out [cols] = x - what row `row` of `quantised` stands for; exact but for one rounding each.
void residual_row(const float* x, int64_t row, const QuantisedActivations& quantised, float* out);

/// A kernel's view of one tile of activations from its first row on: (block b, row m) is element b * stride + m.
struct ActivationBlocks {
  const int8_t* q;
  const float* scale;
  const int32_t* negative_sum;
  const int32_t* negative_half_sum;
  const float* negative_scaled_sum;
  const float* negative_scaled_half_sum;
  int64_t stride;

  ActivationBlocks(const QuantisedActivations& x, int64_t tile)
      : q(x.q.data<int8_t>() + x.tile_start(tile) * 32),
        scale(x.scale.data() + x.tile_start(tile)),
        negative_sum(x.negative_sum.data() + x.tile_start(tile)),
        negative_half_sum(x.negative_half_sum.data() + 2 * x.tile_start(tile)),
        negative_scaled_sum(x.negative_scaled_sum.data() + x.tile_start(tile)),
        negative_scaled_half_sum(x.negative_scaled_half_sum.data() + 2 * x.tile_start(tile)),
        stride(x.height(tile)) {}

  /// The same, `rows` rows further.
  ActivationBlocks skip(int64_t rows) const {
    ActivationBlocks next = *this;
    next.q += rows * 32;
    next.scale += rows;
    next.negative_sum += rows;
    next.negative_half_sum += 2 * rows;
    next.negative_scaled_sum += rows;
    next.negative_scaled_half_sum += 2 * rows;
    return next;
  }
};

}  // namespace slipring
