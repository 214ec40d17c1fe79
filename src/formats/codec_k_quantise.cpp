// Encoding of the K types. Each group gets the best scale and minimum of its own (scale_search.h); these are rounded to
// the few bits that the block keeps for them, trying the neighbours as well; last, the elements are rounded with what
// will really be read back.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "formats/codec_families.h"
#include "formats/k_scales.h"
#include "formats/scale_search.h"

namespace slipring {
namespace {

constexpr int kElements = 256;

// Scales, minima and levels of a block with `Groups` groups: x is near d * scale * q - dmin * min.
template <int Groups>
struct AffineBlock {
  uint16_t d = 0;
  uint16_t dmin = 0;
  uint8_t scale[Groups] = {};
  uint8_t min[Groups] = {};
  uint8_t q[kElements] = {};
};

int nearest(float value, float unit, int limit) {
  return unit == 0 ? 0 : static_cast<int>(std::lround(std::clamp(value / unit, 0.0F, static_cast<float>(limit))));
}

template <int Groups>
AffineBlock<Groups> fit_affine_block(const float* x, int levels, int scale_limit) {
  constexpr int kSize = kElements / Groups;
  AffineBlock<Groups> out;
  Affine fits[Groups];
  float largest_scale = 0;
  float largest_min = 0;
  for (int group = 0; group < Groups; ++group) {
    fits[group] = search_affine<kSize>(x + group * kSize, levels, MinRule::not_positive);
    largest_scale = std::max(largest_scale, fits[group].scale);
    largest_min = std::max(largest_min, -fits[group].min);
  }
  out.d = finite_f16(largest_scale / static_cast<float>(scale_limit));
  out.dmin = finite_f16(largest_min / static_cast<float>(scale_limit));
  const float d = f32_from_f16(out.d);
  const float dmin = f32_from_f16(out.dmin);
  for (int group = 0; group < Groups; ++group) {
    const float* values = x + group * kSize;
    const int scale = nearest(fits[group].scale, d, scale_limit);
    const int min = nearest(-fits[group].min, dmin, scale_limit);
    double best_error = HUGE_VAL;
    for (int s = std::max(0, scale - 1); s <= std::min(scale_limit, scale + 1); ++s) {
      for (int m = std::max(0, min - 1); m <= std::min(scale_limit, min + 1); ++m) {
        const double error =
            squared_error<kSize>(values, d * static_cast<float>(s), -(dmin * static_cast<float>(m)), 0, levels);
        if (error >= best_error) continue;
        best_error = error;
        out.scale[group] = static_cast<uint8_t>(s);
        out.min[group] = static_cast<uint8_t>(m);
      }
    }
    round_to_levels<kSize>(values, d * static_cast<float>(out.scale[group]),
                           -(dmin * static_cast<float>(out.min[group])), 0, levels, out.q + group * kSize);
  }
  return out;
}

// The same for d * scale * q with signed scales and levels; q is stored from 0.
struct SymmetricBlock {
  uint16_t d = 0;
  int scale[16] = {};
  uint8_t q[kElements] = {};
};

SymmetricBlock fit_symmetric_block(const float* x, int lo, int hi, int scale_lo, int scale_hi) {
  constexpr int kSize = 16;
  SymmetricBlock out;
  float fits[16];
  float extreme = 0;
  for (int group = 0; group < 16; ++group) {
    fits[group] = search_scale<kSize>(x + group * kSize, lo, hi);
    if (std::abs(fits[group]) > std::abs(extreme)) extreme = fits[group];
  }
  // The largest scale takes the end of the range that reaches further, the negative one.
  out.d = finite_f16(extreme / static_cast<float>(scale_lo));
  const float d = f32_from_f16(out.d);
  for (int group = 0; group < 16; ++group) {
    const float* values = x + group * kSize;
    const float ratio = d == 0 ? 0 : fits[group] / d;
    const auto middle =
        static_cast<int>(std::lround(std::clamp(ratio, static_cast<float>(scale_lo), static_cast<float>(scale_hi))));
    double best_error = HUGE_VAL;
    for (int s = std::max(scale_lo, middle - 1); s <= std::min(scale_hi, middle + 1); ++s) {
      const double error = squared_error<kSize>(values, d * static_cast<float>(s), 0, lo, hi);
      if (error >= best_error) continue;
      best_error = error;
      out.scale[group] = s;
    }
    round_to_levels<kSize>(values, d * static_cast<float>(out.scale[group]), 0, lo, hi, out.q + group * kSize);
  }
  return out;
}

KScales k_scales_of(const AffineBlock<8>& fit) {
  KScales k{};
  std::copy_n(fit.scale, 8, k.scale);
  std::copy_n(fit.min, 8, k.min);
  return k;
}

// Low four bits: byte b of each 32 holds elements b and b + 32 of 64.
void pack_nibbles(const uint8_t* q, uint8_t* packed) {
  for (int i = 0; i < kElements / 2; ++i) {
    const uint8_t* pair = q + i / 32 * 64 + i % 32;
    packed[i] = static_cast<uint8_t>((pair[0] & 15) | ((pair[32] & 15) << 4));
  }
}

// Two bits: byte b of each 32 holds elements b, b + 32, b + 64, b + 96 of 128.
void pack_pairs(const uint8_t* q, int shift, uint8_t* packed) {
  for (int i = 0; i < kElements / 4; ++i) {
    const uint8_t* four = q + i / 32 * 128 + i % 32;
    int byte = 0;
    for (int k = 0; k < 4; ++k) byte |= ((four[32 * k] >> shift) & 3) << (2 * k);
    packed[i] = static_cast<uint8_t>(byte);
  }
}

// One bit: bit j of byte b for element 32 j + b.
void pack_bits(const uint8_t* q, int shift, uint8_t* packed) {
  for (int b = 0; b < 32; ++b) {
    int byte = 0;
    for (int j = 0; j < 8; ++j) byte |= ((q[32 * j + b] >> shift) & 1) << j;
    packed[b] = static_cast<uint8_t>(byte);
  }
}

}  // namespace

void encode(const float* x, blocks::Q2_K& block) {
  const auto fit = fit_affine_block<16>(x, 3, 15);
  block.d = fit.d;
  block.dmin = fit.dmin;
  for (int i = 0; i < 16; ++i) block.scales[i] = static_cast<uint8_t>(fit.scale[i] | (fit.min[i] << 4));
  pack_pairs(fit.q, 0, block.q);
}

void encode(const float* x, blocks::Q3_K& block) {
  const SymmetricBlock fit = fit_symmetric_block(x, -4, 3, -32, 31);
  block.d = fit.d;
  uint8_t scales[16];
  for (int i = 0; i < 16; ++i) scales[i] = static_cast<uint8_t>(fit.scale[i] + 32);
  pack_q3_scales(scales, block.scales);
  pack_pairs(fit.q, 0, block.q);
  pack_bits(fit.q, 2, block.high);
}

void encode(const float* x, blocks::Q4_K& block) {
  const auto fit = fit_affine_block<8>(x, 15, 63);
  block.d = fit.d;
  block.dmin = fit.dmin;
  pack_k_scales(k_scales_of(fit), block.scales);
  pack_nibbles(fit.q, block.q);
}

void encode(const float* x, blocks::Q5_K& block) {
  const auto fit = fit_affine_block<8>(x, 31, 63);
  block.d = fit.d;
  block.dmin = fit.dmin;
  pack_k_scales(k_scales_of(fit), block.scales);
  pack_nibbles(fit.q, block.q);
  pack_bits(fit.q, 4, block.high);
}

void encode(const float* x, blocks::Q6_K& block) {
  const SymmetricBlock fit = fit_symmetric_block(x, -32, 31, -128, 127);
  block.d = fit.d;
  for (int i = 0; i < 16; ++i) block.scales[i] = static_cast<int8_t>(fit.scale[i]);
  // As pack_nibbles, but byte b of each 64 holds elements b and b + 64 of 128.
  for (int i = 0; i < kElements / 2; ++i) {
    const uint8_t* pair = fit.q + i / 64 * 128 + i % 64;
    block.q[i] = static_cast<uint8_t>((pair[0] & 15) | ((pair[64] & 15) << 4));
  }
  pack_pairs(fit.q, 4, block.high);
}

}  // namespace slipring
