#include "program/gguf_bytes.h"

#include <cstring>

#include "formats/block_layouts.h"

namespace slipring {
namespace {

/// Two codes a byte: elements i and i + `apart`, for i < apart.
void pack_nibbles(const uint8_t* codes, int apart, uint8_t* out) {
  for (int i = 0; i < apart; ++i) out[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + apart] & 15) << 4);
}

/// Bit i of the result's 32 is the fifth bit of code i.
void pack_fifth_bits(const uint8_t* codes, uint8_t* out) {
  for (int i = 0; i < 32; ++i) out[i / 8] = static_cast<uint8_t>(out[i / 8] | (codes[i] >> 4) << (i % 8));
}

/// Two bits a code, from bit `shift` on: byte b of each 32 holds codes b, b + 32, b + 64, b + 96 of 128.
void pack_crumbs(const uint8_t* codes, int shift, uint8_t* out) {
  for (int half = 0; half < 2; ++half) {
    for (int b = 0; b < 32; ++b) {
      uint32_t byte = 0;
      for (int k = 0; k < 4; ++k)
        byte |= static_cast<uint32_t>((codes[128 * half + 32 * k + b] >> shift) & 3) << (2 * k);
      out[32 * half + b] = static_cast<uint8_t>(byte);
    }
  }
}

/// One bit a code: bit j of byte b is bit `shift` of code 32 j + b.
void pack_high_bits(const uint8_t* codes, int shift, uint8_t* out) {
  for (int b = 0; b < 32; ++b) {
    uint32_t byte = 0;
    for (int j = 0; j < 8; ++j) byte |= static_cast<uint32_t>((codes[32 * j + b] >> shift) & 1) << j;
    out[b] = static_cast<uint8_t>(byte);
  }
}

/// Eight 6-bit scales and minima in 12 bytes.
void pack_scales_and_minima(const SourceBlock& block, uint8_t* out) {
  for (int i = 0; i < 4; ++i) {
    out[i] = static_cast<uint8_t>((block.scale[i] & 63) | (block.scale[i + 4] >> 4) << 6);
    out[i + 4] = static_cast<uint8_t>((block.min[i] & 63) | (block.min[i + 4] >> 4) << 6);
    out[i + 8] = static_cast<uint8_t>((block.scale[i + 4] & 15) | (block.min[i + 4] & 15) << 4);
  }
}

template <class Block, class Fill>
void write(uint8_t* out, const Fill& fill) {
  Block block{};
  fill(block);
  std::memcpy(out, &block, sizeof(block));
}

template <class Block>
void write_k_nibbles(const SourceBlock& from, const uint8_t* codes, Block& to) {
  to.d = from.d;
  to.dmin = from.dmin;
  pack_scales_and_minima(from, to.scales);
  for (int pair = 0; pair < 4; ++pair) pack_nibbles(codes + 64 * pair, 32, to.q + 32 * pair);
}

void write_q3_k(const SourceBlock& from, const uint8_t* codes, blocks::Q3_K& to) {
  to.d = from.d;
  pack_high_bits(codes, 2, to.high);
  pack_crumbs(codes, 0, to.q);
  for (int i = 0; i < 16; ++i) {  // 6 bits: four in the first 8 bytes, two in the last 4
    const int scale = static_cast<int8_t>(from.scale[i]) + 32;
    to.scales[i % 8] = static_cast<uint8_t>(to.scales[i % 8] | (scale & 15) << (i / 8 * 4));
    to.scales[8 + i % 4] = static_cast<uint8_t>(to.scales[8 + i % 4] | ((scale >> 4) & 3) << (i / 4 * 2));
  }
}

void write_q6_k(const SourceBlock& from, const uint8_t* codes, blocks::Q6_K& to) {
  to.d = from.d;
  std::memcpy(to.scales, from.scale, sizeof(to.scales));
  for (int half = 0; half < 2; ++half) pack_nibbles(codes + 128 * half, 64, to.q + 64 * half);
  pack_crumbs(codes, 4, to.high);
}

void write_iq4_xs(const SourceBlock& from, const uint8_t* codes, blocks::IQ4_XS& to) {
  to.d = from.d;
  for (int i = 0; i < 8; ++i) {
    const int scale = static_cast<int8_t>(from.scale[i]) + 32;
    to.scales_low[i / 2] = static_cast<uint8_t>(to.scales_low[i / 2] | (scale & 15) << (i % 2 * 4));
    to.scales_high = static_cast<uint16_t>(to.scales_high | ((scale >> 4) & 3) << (2 * i));
    pack_nibbles(codes + 32 * i, 16, to.q + 16 * i);
  }
}

}  // namespace

bool has_gguf_bytes(DType dtype) noexcept {
  return source_reader(dtype) != nullptr && dtype != DType::IQ3_S && dtype != DType::IQ3_XXS && dtype != DType::IQ2_S;
}

void write_gguf_bytes(DType dtype, const SourceBlock& from, uint8_t* out) {
  uint8_t codes[256];
  std::memcpy(codes, from.words, sizeof(codes));
  switch (dtype) {
    case DType::Q4_0:
    case DType::IQ4_NL:
      return write<blocks::Q4_0>(out, [&](auto& to) {
        to.d = from.d;
        pack_nibbles(codes, 16, to.q);
      });
    case DType::Q4_1:
      return write<blocks::Q4_1>(out, [&](auto& to) {
        to.d = from.d;
        to.m = from.dmin;
        pack_nibbles(codes, 16, to.q);
      });
    case DType::Q5_0:
      return write<blocks::Q5_0>(out, [&](auto& to) {
        to.d = from.d;
        pack_nibbles(codes, 16, to.q);
        pack_fifth_bits(codes, to.high);
      });
    case DType::Q5_1:
      return write<blocks::Q5_1>(out, [&](auto& to) {
        to.d = from.d;
        to.m = from.dmin;
        pack_nibbles(codes, 16, to.q);
        pack_fifth_bits(codes, to.high);
      });
    case DType::Q8_0:
      return write<blocks::Q8_0>(out, [&](auto& to) {
        to.d = from.d;
        for (int i = 0; i < 32; ++i) to.q[i] = static_cast<int8_t>(codes[i] - 128);
      });
    case DType::MXFP4:
      return write<blocks::MXFP4>(out, [&](auto& to) {
        to.e = from.scale[0];
        pack_nibbles(codes, 16, to.q);
      });
    case DType::Q2_K:
      return write<blocks::Q2_K>(out, [&](auto& to) {
        to.d = from.d;
        to.dmin = from.dmin;
        std::memcpy(to.scales, from.scale, sizeof(to.scales));
        pack_crumbs(codes, 0, to.q);
      });
    case DType::Q3_K:
      return write<blocks::Q3_K>(out, [&](auto& to) { write_q3_k(from, codes, to); });
    case DType::Q4_K:
      return write<blocks::Q4_K>(out, [&](auto& to) { write_k_nibbles(from, codes, to); });
    case DType::Q5_K:
      return write<blocks::Q5_K>(out, [&](auto& to) {
        write_k_nibbles(from, codes, to);
        pack_high_bits(codes, 4, to.high);
      });
    case DType::Q6_K:
      return write<blocks::Q6_K>(out, [&](auto& to) { write_q6_k(from, codes, to); });
    case DType::IQ4_XS:
      return write<blocks::IQ4_XS>(out, [&](auto& to) { write_iq4_xs(from, codes, to); });
    default:
      return;
  }
}

}  // namespace slipring
