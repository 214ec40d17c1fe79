// Decoding of the K types: 256 elements in groups of 16 or 32 with a small scale each.
#include <cstdint>

#include "formats/codec_families.h"
#include "formats/k_scales.h"
#include "tensor/half.h"

namespace slipring {

void decode(const blocks::Q2_K& block, float* out) {
  const float d = f32_from_f16(block.d);
  const float dmin = f32_from_f16(block.dmin);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(block.scales[group] & 15);
    const float min = dmin * static_cast<float>(block.scales[group] >> 4);
    // 128 elements share 32 bytes; a group of 16 is half a run of 32 at one shift.
    const uint8_t* q = block.q + group / 8 * 32 + group % 2 * 16;
    const int shift = group % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) *out++ = scale * static_cast<float>((q[i] >> shift) & 3) - min;
  }
}

void decode(const blocks::Q3_K& block, float* out) {
  const float d = f32_from_f16(block.d);
  uint8_t scales[16];
  unpack_q3_scales(block.scales, scales);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(scales[group] - 32);
    const uint8_t* q = block.q + group / 8 * 32 + group % 2 * 16;
    const uint8_t* high = block.high + group % 2 * 16;
    const int shift = group % 8 / 2 * 2;
    const int bit = group / 2;
    for (int i = 0; i < 16; ++i) {
      const int level = ((q[i] >> shift) & 3) | (((high[i] >> bit) & 1) << 2);
      *out++ = scale * static_cast<float>(level - 4);
    }
  }
}

void decode(const blocks::Q4_K& block, float* out) {
  const float d = f32_from_f16(block.d);
  const float dmin = f32_from_f16(block.dmin);
  const KScales k = unpack_k_scales(block.scales);
  for (int group = 0; group < 8; ++group) {
    const float scale = d * static_cast<float>(k.scale[group]);
    const float min = dmin * static_cast<float>(k.min[group]);
    const uint8_t* q = block.q + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) *out++ = scale * static_cast<float>((q[i] >> shift) & 15) - min;
  }
}

void decode(const blocks::Q5_K& block, float* out) {
  const float d = f32_from_f16(block.d);
  const float dmin = f32_from_f16(block.dmin);
  const KScales k = unpack_k_scales(block.scales);
  for (int group = 0; group < 8; ++group) {
    const float scale = d * static_cast<float>(k.scale[group]);
    const float min = dmin * static_cast<float>(k.min[group]);
    const uint8_t* q = block.q + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int level = ((q[i] >> shift) & 15) | (((block.high[i] >> group) & 1) << 4);
      *out++ = scale * static_cast<float>(level) - min;
    }
  }
}

void decode(const blocks::Q6_K& block, float* out) {
  const float d = f32_from_f16(block.d);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(block.scales[group]);
    // 128 elements share 64 bytes of low bits and 32 of high bits.
    const uint8_t* q = block.q + group / 8 * 64 + group % 4 * 16;
    const uint8_t* high = block.high + group / 8 * 32 + group % 2 * 16;
    const int shift = group % 8 / 4 * 4;
    const int high_shift = group % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) {
      const int level = ((q[i] >> shift) & 15) | (((high[i] >> high_shift) & 3) << 4);
      *out++ = scale * static_cast<float>(level - 32);
    }
  }
}

}  // namespace slipring
