// Block types of 32 elements with one scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
#include <algorithm>
#include <cstdint>

#include "formats/codec_families.h"
#include "formats/scale_search.h"
#include "tensor/half.h"

namespace slipring {
namespace {

constexpr int kElements = 32;
constexpr int kHalf = 16;

int low(uint8_t byte) {
  return byte & 15;
}
int high(uint8_t byte) {
  return byte >> 4;
}
// The fifth bit of element i, in its place.
int fifth(const uint8_t* bits, int i) {
  return ((bits[i / 8] >> (i % 8)) & 1) << 4;
}

void pack_halves(const uint8_t* q, uint8_t* packed) {
  for (int i = 0; i < kHalf; ++i) packed[i] = static_cast<uint8_t>((q[i] & 15) | ((q[i + kHalf] & 15) << 4));
}

void pack_fifth_bits(const uint8_t* q, uint8_t* bits) {
  std::fill_n(bits, 4, uint8_t{0});
  for (int i = 0; i < kElements; ++i) bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | ((q[i] >> 4) << (i % 8)));
}

}  // namespace

void decode(const blocks::Q4_0& block, float* out) {
  const float d = f32_from_f16(block.d);
  for (int i = 0; i < kHalf; ++i) {
    out[i] = d * static_cast<float>(low(block.q[i]) - 8);
    out[i + kHalf] = d * static_cast<float>(high(block.q[i]) - 8);
  }
}

void decode(const blocks::Q4_1& block, float* out) {
  const float d = f32_from_f16(block.d);
  const float m = f32_from_f16(block.m);
  for (int i = 0; i < kHalf; ++i) {
    out[i] = d * static_cast<float>(low(block.q[i])) + m;
    out[i + kHalf] = d * static_cast<float>(high(block.q[i])) + m;
  }
}

void decode(const blocks::Q5_0& block, float* out) {
  const float d = f32_from_f16(block.d);
  for (int i = 0; i < kHalf; ++i) {
    out[i] = d * static_cast<float>((low(block.q[i]) | fifth(block.high, i)) - 16);
    out[i + kHalf] = d * static_cast<float>((high(block.q[i]) | fifth(block.high, i + kHalf)) - 16);
  }
}

void decode(const blocks::Q5_1& block, float* out) {
  const float d = f32_from_f16(block.d);
  const float m = f32_from_f16(block.m);
  for (int i = 0; i < kHalf; ++i) {
    out[i] = d * static_cast<float>(low(block.q[i]) | fifth(block.high, i)) + m;
    out[i + kHalf] = d * static_cast<float>(high(block.q[i]) | fifth(block.high, i + kHalf)) + m;
  }
}

void decode(const blocks::Q8_0& block, float* out) {
  const float d = f32_from_f16(block.d);
  for (int i = 0; i < kElements; ++i) out[i] = static_cast<float>(block.q[i]) * d;
}

void encode(const float* x, blocks::Q4_0& block) {
  uint8_t q[kElements];
  block.d = finite_f16(search_scale<kElements>(x, -8, 7));
  round_to_levels<kElements>(x, f32_from_f16(block.d), 0, -8, 7, q);
  pack_halves(q, block.q);
}

void encode(const float* x, blocks::Q5_0& block) {
  uint8_t q[kElements];
  block.d = finite_f16(search_scale<kElements>(x, -16, 15));
  round_to_levels<kElements>(x, f32_from_f16(block.d), 0, -16, 15, q);
  pack_halves(q, block.q);
  pack_fifth_bits(q, block.high);
}

void encode(const float* x, blocks::Q4_1& block) {
  uint8_t q[kElements];
  const Affine fit = search_affine<kElements>(x, 15, MinRule::any);
  block.d = finite_f16(fit.scale);
  block.m = finite_f16(fit.min);
  round_to_levels<kElements>(x, f32_from_f16(block.d), f32_from_f16(block.m), 0, 15, q);
  pack_halves(q, block.q);
}

void encode(const float* x, blocks::Q5_1& block) {
  uint8_t q[kElements];
  const Affine fit = search_affine<kElements>(x, 31, MinRule::any);
  block.d = finite_f16(fit.scale);
  block.m = finite_f16(fit.min);
  round_to_levels<kElements>(x, f32_from_f16(block.d), f32_from_f16(block.m), 0, 31, q);
  pack_halves(q, block.q);
  pack_fifth_bits(q, block.high);
}

void encode(const float* x, blocks::Q8_0& block) {
  float largest = 0;
  for (int i = 0; i < kElements; ++i) largest = std::max(largest, x[i] < 0 ? -x[i] : x[i]);
  block.d = finite_f16(largest / 127);
  uint8_t q[kElements];
  round_to_levels<kElements>(x, f32_from_f16(block.d), 0, -127, 127, q);
  for (int i = 0; i < kElements; ++i) block.q[i] = static_cast<int8_t>(q[i] - 127);
}

}  // namespace slipring
