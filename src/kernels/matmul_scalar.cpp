#include <cmath>
#include <cstring>

#include "kernels/matmul_tile.h"
#include "kernels/packed_block.h"
#include "tensor/half.h"

namespace slipring {
namespace {

float weight_at(DType dtype, const uint8_t* tile, int64_t i) {
  if (dtype == DType::F32) {
    float value = 0;
    std::memcpy(&value, tile + 4 * i, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, tile + 2 * i, 2);
  return dtype == DType::F16 ? f32_from_f16(bits) : f32_from_bf16(bits);
}

}  // namespace

void float_tile_scalar(DType dtype, const uint8_t* tile, int64_t cols, const float* x, int64_t stride, int64_t rows,
                       float* out) {
  for (int64_t m = 0; m < rows; ++m) {
    float partial[2][kTileRows] = {};
    for (int64_t k = 0; k < cols; ++k) {
      float* sums = partial[k % 2];
      for (int lane = 0; lane < kTileRows; ++lane) {
        sums[lane] = std::fma(weight_at(dtype, tile, k * kTileRows + lane), x[k * stride + m], sums[lane]);
      }
    }
    for (int lane = 0; lane < kTileRows; ++lane) out[m * kTileRows + lane] = partial[0][lane] + partial[1][lane];
  }
}

void quantised_tile_scalar(DType dtype, const uint8_t* tile, int64_t cols, const ActivationBlocks& x, int64_t rows,
                           float* out) {
  const PackedLayout& layout = *layout_of(dtype);
  for (int64_t i = 0; i < rows * kTileRows; ++i) out[i] = 0.0F;
  for (int64_t b = 0; b < cols / kBlock; ++b) {
    for (int lane = 0; lane < kTileRows; ++lane) {
      const PlainBlock w = plain_block(layout, tile, cols, b, lane);
      for (int64_t m = 0; m < rows; ++m) {
        const int64_t at = b * x.stride + m;
        int32_t dots[2] = {0, 0};
        for (int i = 0; i < kBlock; ++i) dots[i / layout.sub_block] += w.q[i] * x.q[at * kBlock + i];
        float& sum = out[m * kTileRows + lane];
        float scaled = static_cast<float>(dots[0]) * w.scale[0];
        if (layout.subs() == 2) scaled = std::fma(static_cast<float>(dots[1]), w.scale[1], scaled);
        sum = std::fma(scaled, x.scale[at], sum);
        if (!layout.has_min()) continue;
        if (layout.subs() == 1) {
          sum = std::fma(w.min[0], x.negative_scaled_sum[at], sum);
        } else {
          for (int sub = 0; sub < 2; ++sub) {
            sum = std::fma(w.min[sub], x.negative_scaled_half_sum[2 * at + sub], sum);
          }
        }
      }
    }
  }
}

}  // namespace slipring
