// One block of a packed quantised matrix as plain numbers: the definition of every layout in packed_layout.h.
#pragma once

#include <cstdint>

#include "kernels/packed_layout.h"
#include "kernels/source_blocks.h"

namespace slipring {

/// Column i of the block stands for scale[i / sub_block] * q[i] - min[i / sub_block].
struct PlainBlock {
  int32_t q[kBlock];  ///< offset already subtracted, table already applied
  float scale[2];     ///< [32 / sub_block]
  float min[2];       ///< [32 / sub_block]; 0 without minima
};

/// Block `block` of row `lane` of the tile at `tile`. @pre 0 <= block < cols / 32, 0 <= lane < 16
PlainBlock plain_block(const PackedLayout& layout, const uint8_t* tile, int64_t cols, int64_t block, int lane);

/// Source block `index` (32 or 256 columns) of row `lane` of the tile at `tile`, as the packer read it.
void unpack_block(const PackedLayout& layout, const uint8_t* tile, int64_t cols, int64_t index, int lane,
                  SourceBlock& out);

}  // namespace slipring
