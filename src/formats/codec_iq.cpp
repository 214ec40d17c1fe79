// Decoding of the types with codebooks: IQ4_NL, IQ4_XS, IQ3_XXS, IQ3_S, IQ2_S, MXFP4.
#include <bit>
#include <cstdint>
#include <cstring>

#include "formats/codec_families.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

namespace slipring {
namespace {

// Levels of the formats. IQ4: a non-uniform 8-bit grid. MXFP4: twice the E2M1 values of the OCP microscaling format.
constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kMxfp4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr uint8_t kIq3XxsLevels[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr uint8_t kIq3SLevels[8] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr uint8_t kIq2SLevels[3] = {8, 25, 43};

float sign_of(unsigned signs, int i) {
  return ((signs >> i) & 1U) != 0 ? -1.0F : 1.0F;
}

// Four elements of one codeword of 4-bit level numbers.
void put_codeword(unsigned code, const uint8_t* levels, float scale, unsigned signs, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = scale * static_cast<float>(levels[(code >> (4 * i)) & 7U]) * sign_of(signs, i);
}

}  // namespace

void decode(const blocks::IQ4_NL& block, float* out) {
  const float d = f32_from_f16(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kIq4Levels[block.q[i] & 15]);
    out[i + 16] = d * static_cast<float>(kIq4Levels[block.q[i] >> 4]);
  }
}

void decode(const blocks::IQ4_XS& block, float* out) {
  const float d = f32_from_f16(block.d);
  for (int group = 0; group < 8; ++group) {
    const int low = (block.scales_low[group / 2] >> (group % 2 * 4)) & 15;
    const int high = (block.scales_high >> (2 * group)) & 3;
    const float scale = d * static_cast<float>((low | (high << 4)) - 32);
    const uint8_t* q = block.q + group * 16;
    for (int i = 0; i < 16; ++i) {
      out[group * 32 + i] = scale * static_cast<float>(kIq4Levels[q[i] & 15]);
      out[group * 32 + i + 16] = scale * static_cast<float>(kIq4Levels[q[i] >> 4]);
    }
  }
}

void decode(const blocks::IQ3_XXS& block, float* out) {
  const float d = f32_from_f16(block.d);
  for (int group = 0; group < 8; ++group) {
    uint32_t word = 0;
    std::memcpy(&word, block.scales_and_signs + 4 * group, sizeof word);
    const float scale = d * (0.5F + static_cast<float>(word >> 28)) * 0.5F;
    for (int eight = 0; eight < 4; ++eight) {
      // Seven signs are stored; the eighth makes their number even.
      const uint32_t seven = (word >> (7 * eight)) & 127U;
      const uint32_t signs = seven | ((static_cast<uint32_t>(std::popcount(seven)) & 1U) << 7);
      const uint8_t* q = block.q + group * 8 + eight * 2;
      put_codeword(kIq3XxsGrid[q[0]], kIq3XxsLevels, scale, signs, out);
      put_codeword(kIq3XxsGrid[q[1]], kIq3XxsLevels, scale, signs >> 4, out + 4);
      out += 8;
    }
  }
}

void decode(const blocks::IQ3_S& block, float* out) {
  const float d = f32_from_f16(block.d);
  for (int group = 0; group < 8; ++group) {
    const int small = (block.scales[group / 2] >> (group % 2 * 4)) & 15;
    const float scale = d * static_cast<float>(1 + 2 * small);
    for (int four = 0; four < 8; ++four) {
      const unsigned number = block.q[group * 8 + four] | (((block.high[group] >> four) & 1U) << 8);
      const unsigned signs = block.signs[group * 4 + four / 2] >> (four % 2 * 4);
      put_codeword(kIq3SGrid[number], kIq3SLevels, scale, signs, out);
      out += 4;
    }
  }
}

void decode(const blocks::IQ2_S& block, float* out) {
  const float d = f32_from_f16(block.d);
  for (int eight = 0; eight < 32; ++eight) {
    const int group = eight / 2;
    const int small = (block.scales[group / 2] >> (group % 2 * 4)) & 15;
    const float scale = d * (0.5F + static_cast<float>(small)) * 0.25F;
    const unsigned number = block.q[eight] | (((block.high[eight / 4] >> (eight % 4 * 2)) & 3U) << 8);
    const unsigned code = kIq2SGrid[number];
    for (int i = 0; i < 8; ++i) {
      *out++ = scale * static_cast<float>(kIq2SLevels[(code >> (2 * i)) & 3U]) * sign_of(block.signs[eight], i);
    }
  }
}

void decode(const blocks::MXFP4& block, float* out) {
  // 2^(e - 128), half of what E8M0 means since the levels are doubled; e = 0 and 1 give subnormal numbers.
  const uint32_t e = block.e;
  const float d = std::bit_cast<float>(e < 2 ? uint32_t{0x00200000} << e : (e - 1) << 23);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kMxfp4Levels[block.q[i] & 15]);
    out[i + 16] = d * static_cast<float>(kMxfp4Levels[block.q[i] >> 4]);
  }
}

}  // namespace slipring
