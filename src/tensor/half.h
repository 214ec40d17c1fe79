// Scalar conversions between float and the two half types: the slow definition that the SIMD ones are compared with.
#pragma once

#include <bit>
#include <cstdint>

namespace slipring {

/// IEEE 754 binary16, round to nearest even; overflow gives infinity; a NaN stays a quiet NaN with its top bits.
inline uint16_t f16_from_f32(float value) noexcept {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16U) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  uint32_t half = 0;
  if (magnitude > 0x7F800000U) {
    half = 0x7E00U | ((magnitude >> 13U) & 0x3FFU);
  } else if (magnitude >= 0x47800000U) {  // 2^16 and more, infinity included
    half = 0x7C00U;
  } else if (magnitude < 0x38800000U) {  // below 2^-14, the smallest normal: units of 2^-24
    // Adding 0.5 puts 2^-24 at the last bit of the mantissa, so the float addition does the rounding.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    half = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5F);
  } else {
    const uint32_t odd = (magnitude >> 13U) & 1U;
    half = (magnitude - (112U << 23U) + 0xFFFU + odd) >> 13U;  // a carry walks into the exponent, up to infinity
  }
  return static_cast<uint16_t>(sign | half);
}

inline float f32_from_f16(uint16_t half) noexcept {
  const uint32_t sign = (half & 0x8000U) << 16U;
  const uint32_t exponent = (half >> 10U) & 0x1FU;
  const uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255U : exponent + 112U;
  const uint32_t quiet = exponent == 31 && mantissa != 0 ? 0x400000U : 0U;  // a NaN becomes quiet, as hardware has it
  return std::bit_cast<float>(sign | (wide << 23U) | quiet | (mantissa << 13U));
}

/// bfloat16, round to nearest even; a NaN stays a quiet NaN with its top bits.
inline uint16_t bf16_from_f32(float value) noexcept {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

inline float f32_from_bf16(uint16_t bf16) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16U);
}

}  // namespace slipring
