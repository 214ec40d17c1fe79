// For tests and benchmarks: weight matrices of random valid blocks of any type.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <slipring/tensor.h>

#include "kernels/packed_layout.h"
#include "tensor/half.h"

namespace slipring::testing {

/// Byte offsets of the f16 fields of a block, -1 for none.
struct HalfFields {
  int d;
  int dmin;
};
inline HalfFields half_fields(DType dtype) {
  switch (dtype) {
    case DType::Q4_1:
    case DType::Q5_1:
    case DType::Q4_K:
    case DType::Q5_K:
      return {0, 2};
    case DType::Q2_K:
      return {80, 82};
    case DType::Q3_K:
      return {108, -1};
    case DType::Q6_K:
      return {208, -1};
    case DType::MXFP4:
      return {-1, -1};
    default:
      return {0, -1};
  }
}

/// Values of a scale near 1 / sqrt(cols); every bit pattern of the integers and sub-scales occurs.
inline Tensor random_weights(DType dtype, int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  Tensor weights(dtype, {rows, cols});
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  const float spread = 1.0F / std::sqrt(static_cast<float>(cols));
  if (!is_quantised(dtype)) {
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float value = uniform(random) * spread;
      if (dtype == DType::F32) {
        weights.data<float>()[i] = value;
      } else {
        weights.data<uint16_t>()[i] = dtype == DType::F16 ? f16_from_f32(value) : bf16_from_f32(value);
      }
    }
    return weights;
  }
  auto* bytes = weights.data<uint8_t>();
  for (int64_t i = 0; i + 4 <= weights.bytes(); i += 4) {
    const auto word = static_cast<uint32_t>(random());
    std::memcpy(bytes + i, &word, 4);
  }
  const HalfFields fields = half_fields(dtype);
  for (int64_t at = 0; at < weights.bytes(); at += info(dtype).block_bytes) {
    if (dtype == DType::MXFP4) bytes[at] = static_cast<uint8_t>(118 + random() % 6);
    for (const int field : {fields.d, fields.dmin}) {
      if (field < 0) continue;
      const uint16_t half = f16_from_f32(uniform(random) * spread / 16.0F);
      std::memcpy(bytes + at + field, &half, 2);
    }
  }
  return weights;
}

inline std::vector<float> random_activations(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

/// All types with a kernel.
inline std::vector<DType> weight_types() {
  std::vector<DType> types = {DType::F32, DType::F16, DType::BF16};
  for (int type = 0; type <= static_cast<int>(DType::IQ2_S); ++type) {
    if (layout_of(static_cast<DType>(type)) != nullptr) types.push_back(static_cast<DType>(type));
  }
  return types;
}

}  // namespace slipring::testing
