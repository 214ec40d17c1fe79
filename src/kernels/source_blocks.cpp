#include "kernels/source_blocks.h"

#include <bit>
#include <cstddef>
#include <cstring>

#include "tensor/iq_grids.h"

// Layouts: GGUF's block definitions, as of specification version 3. Four columns are handled at a time, one a byte.
namespace slipring {
namespace {

constexpr uint32_t kNibbles = 0x0F0F0F0FU;
constexpr uint32_t kCrumbs = 0x03030303U;
constexpr uint32_t kBits = 0x01010101U;

uint32_t word_at(const uint8_t* p) {
  uint32_t word = 0;
  std::memcpy(&word, p, 4);
  return word;
}
uint16_t half_at(const uint8_t* p) {
  uint16_t half = 0;
  std::memcpy(&half, p, 2);
  return half;
}

/// 16 bytes whose low nibbles are columns 0 to 15 and whose high nibbles are columns 16 to 31.
void read_nibbles(const uint8_t* qs, uint32_t* words) {
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = word_at(qs + 4 * i);
    words[i] = word & kNibbles;
    words[i + 4] = (word >> 4) & kNibbles;
  }
}

/// Adds bit i of `high` as bit 4 of column i.
void add_fifth_bits(uint32_t high, uint32_t* words) {
  for (int i = 0; i < 8; ++i) {
    const uint32_t four = (high >> (4 * i)) & 15U;
    // Spreads the four bits over the four bytes: bit k of `four` lands at bit 8 k of the product.
    words[i] |= ((four * 0x00204081U) & kBits) << 4;
  }
}

void read_q4_0(const uint8_t* block, SourceBlock& out) {
  out.d = half_at(block);
  read_nibbles(block + 2, out.words);
}

void read_q4_1(const uint8_t* block, SourceBlock& out) {
  out.d = half_at(block);
  out.dmin = half_at(block + 2);
  read_nibbles(block + 4, out.words);
}

void read_q5_0(const uint8_t* block, SourceBlock& out) {
  out.d = half_at(block);
  read_nibbles(block + 6, out.words);
  add_fifth_bits(word_at(block + 2), out.words);
}

void read_q5_1(const uint8_t* block, SourceBlock& out) {
  out.d = half_at(block);
  out.dmin = half_at(block + 2);
  read_nibbles(block + 8, out.words);
  add_fifth_bits(word_at(block + 4), out.words);
}

void read_q8_0(const uint8_t* block, SourceBlock& out) {
  out.d = half_at(block);
  for (int i = 0; i < 8; ++i) out.words[i] = word_at(block + 2 + 4 * i) ^ 0x80808080U;  // signed, to offset 128
}

void read_mxfp4(const uint8_t* block, SourceBlock& out) {
  out.scale[0] = block[0];
  read_nibbles(block + 1, out.words);
}

void read_q2_k(const uint8_t* block, SourceBlock& out) {
  std::memcpy(out.scale, block, 16);  // both nibbles: scale and minimum
  const uint8_t* qs = block + 16;
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 8; ++i) {
      const uint32_t word = word_at(qs + 32 * half + 4 * i);
      for (int quarter = 0; quarter < 4; ++quarter) {
        out.words[32 * half + 8 * quarter + i] = (word >> (2 * quarter)) & kCrumbs;
      }
    }
  }
  out.d = half_at(block + 80);
  out.dmin = half_at(block + 82);
}

void read_q3_k(const uint8_t* block, SourceBlock& out) {
  const uint8_t* qs = block + 32;
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 8; ++i) {
      const uint32_t word = word_at(qs + 32 * half + 4 * i);
      const uint32_t high = word_at(block + 4 * i);
      for (int quarter = 0; quarter < 4; ++quarter) {
        out.words[32 * half + 8 * quarter + i] =
            ((word >> (2 * quarter)) & kCrumbs) | ((high >> (4 * half + quarter)) & kBits) << 2;
      }
    }
  }
  // Sixteen 6-bit scales: low nibbles in 8 bytes, the upper two bits in 4 more.
  const uint8_t* packed = block + 96;
  for (int i = 0; i < 16; ++i) {
    const int low = i < 8 ? packed[i] & 15 : packed[i - 8] >> 4;
    const int high = (packed[8 + i % 4] >> (2 * (i / 4))) & 3;
    out.scale[i] = static_cast<uint8_t>((low | high << 4) - 32);
  }
  out.d = half_at(block + 108);
}

/// Eight 6-bit scales and minima in 12 bytes.
void read_scales_and_minima(const uint8_t* packed, SourceBlock& out) {
  for (int i = 0; i < 4; ++i) {
    out.scale[i] = packed[i] & 63;
    out.min[i] = packed[i + 4] & 63;
    out.scale[i + 4] = static_cast<uint8_t>((packed[i + 8] & 15) | (packed[i] >> 6) << 4);
    out.min[i + 4] = static_cast<uint8_t>((packed[i + 8] >> 4) | (packed[i + 4] >> 6) << 4);
  }
}

void read_q4_k(const uint8_t* block, SourceBlock& out) {
  out.d = half_at(block);
  out.dmin = half_at(block + 2);
  read_scales_and_minima(block + 4, out);
  for (int pair = 0; pair < 4; ++pair) {
    for (int i = 0; i < 8; ++i) {
      const uint32_t word = word_at(block + 16 + 32 * pair + 4 * i);
      out.words[16 * pair + i] = word & kNibbles;
      out.words[16 * pair + 8 + i] = (word >> 4) & kNibbles;
    }
  }
}

void read_q5_k(const uint8_t* block, SourceBlock& out) {
  out.d = half_at(block);
  out.dmin = half_at(block + 2);
  read_scales_and_minima(block + 4, out);
  for (int i = 0; i < 8; ++i) {
    const uint32_t high = word_at(block + 16 + 4 * i);
    for (int pair = 0; pair < 4; ++pair) {
      const uint32_t word = word_at(block + 48 + 32 * pair + 4 * i);
      out.words[16 * pair + i] = (word & kNibbles) | ((high >> (2 * pair)) & kBits) << 4;
      out.words[16 * pair + 8 + i] = ((word >> 4) & kNibbles) | ((high >> (2 * pair + 1)) & kBits) << 4;
    }
  }
}

void read_q6_k(const uint8_t* block, SourceBlock& out) {
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = block + 64 * half;
    const uint8_t* high = block + 128 + 32 * half;
    uint32_t* words = out.words + 32 * half;
    for (int i = 0; i < 8; ++i) {
      const uint32_t a = word_at(low + 4 * i);
      const uint32_t b = word_at(low + 32 + 4 * i);
      const uint32_t h = word_at(high + 4 * i);
      words[i] = (a & kNibbles) | (h & kCrumbs) << 4;
      words[8 + i] = (b & kNibbles) | ((h >> 2) & kCrumbs) << 4;
      words[16 + i] = ((a >> 4) & kNibbles) | ((h >> 4) & kCrumbs) << 4;
      words[24 + i] = ((b >> 4) & kNibbles) | ((h >> 6) & kCrumbs) << 4;
    }
  }
  std::memcpy(out.scale, block + 192, 16);
  out.d = half_at(block + 208);
}

void read_iq4_xs(const uint8_t* block, SourceBlock& out) {
  out.d = half_at(block);
  const uint32_t high = half_at(block + 2);
  for (int i = 0; i < 8; ++i) {
    const uint32_t low = (block[4 + i / 2] >> (4 * (i % 2))) & 15U;
    out.scale[i] = static_cast<uint8_t>((low | ((high >> (2 * i)) & 3U) << 4) - 32U);
    read_nibbles(block + 8 + 16 * i, out.words + 8 * i);
  }
}

/// Spreads four numbers of 4 bits each over the bytes of a word, and bit i of `signs` to bit `sign_bit` of byte i.
uint32_t spread(uint32_t codeword, uint32_t signs, int sign_bit) {
  const uint32_t pairs = (codeword | codeword << 8) & 0x00FF00FFU;
  const uint32_t numbers = (pairs | pairs << 4) & kNibbles;
  return numbers | (((signs & 15U) * 0x00204081U) & kBits) << sign_bit;
}

void read_iq3_xxs(const uint8_t* block, SourceBlock& out) {
  out.d = half_at(block);
  for (int group = 0; group < 8; ++group) {
    const uint32_t tail = word_at(block + 66 + 4 * group);
    out.scale[group] = static_cast<uint8_t>(2 * (tail >> 28) + 1);  // of d / 4
    for (int eight = 0; eight < 4; ++eight) {
      // Seven signs are stored; the eighth makes their number even.
      const uint32_t seven = (tail >> (7 * eight)) & 127U;
      const uint32_t signs = seven | (static_cast<uint32_t>(std::popcount(seven)) & 1U) << 7;
      const uint8_t* q = block + 2 + 8 * group + 2 * eight;
      uint32_t* words = out.words + 8 * group + 2 * eight;
      words[0] = spread(kIq3XxsGrid[q[0]], signs, 3);
      words[1] = spread(kIq3XxsGrid[q[1]], signs >> 4, 3);
    }
  }
}

void read_iq3_s(const uint8_t* block, SourceBlock& out) {
  out.d = half_at(block);
  const uint8_t* high = block + 66;
  const uint8_t* signs = block + 74;
  const uint8_t* scales = block + 106;
  for (int group = 0; group < 8; ++group) {
    const int small = (scales[group / 2] >> (group % 2 * 4)) & 15;
    out.scale[group] = static_cast<uint8_t>(2 * small + 1);
    for (int four = 0; four < 8; ++four) {
      const uint32_t number = block[2 + 8 * group + four] | ((high[group] >> four) & 1U) << 8;
      const uint32_t sign = static_cast<uint32_t>(signs[4 * group + four / 2]) >> (four % 2 * 4);
      out.words[8 * group + four] = spread(kIq3SGrid[number], sign, 3);
    }
  }
}

void read_iq2_s(const uint8_t* block, SourceBlock& out) {
  out.d = half_at(block);
  const uint8_t* signs = block + 34;
  const uint8_t* high = block + 66;
  const uint8_t* scales = block + 74;
  for (int i = 0; i < 16; ++i) {
    out.scale[i] = static_cast<uint8_t>(2 * ((scales[i / 2] >> (i % 2 * 4)) & 15) + 1);  // of d / 8
  }
  for (int eight = 0; eight < 32; ++eight) {
    const uint32_t number = block[2 + eight] | ((high[eight / 4] >> (eight % 4 * 2)) & 3U) << 8;
    const uint32_t code = kIq2SGrid[number];
    for (int four = 0; four < 2; ++four) {
      uint32_t nibbles = 0;  // the codebook has 2 bits a number
      for (int i = 0; i < 4; ++i) nibbles |= ((code >> (8 * four + 2 * i)) & 3U) << (4 * i);
      out.words[2 * eight + four] = spread(nibbles, static_cast<uint32_t>(signs[eight]) >> (4 * four), 2);
    }
  }
}

}  // namespace

ReadBlock source_reader(DType dtype) noexcept {
  switch (dtype) {
    case DType::Q4_0:
    case DType::IQ4_NL:
      return read_q4_0;
    case DType::Q4_1:
      return read_q4_1;
    case DType::Q5_0:
      return read_q5_0;
    case DType::Q5_1:
      return read_q5_1;
    case DType::Q8_0:
      return read_q8_0;
    case DType::Q2_K:
      return read_q2_k;
    case DType::Q3_K:
      return read_q3_k;
    case DType::Q4_K:
      return read_q4_k;
    case DType::Q5_K:
      return read_q5_k;
    case DType::Q6_K:
      return read_q6_k;
    case DType::IQ4_XS:
      return read_iq4_xs;
    case DType::MXFP4:
      return read_mxfp4;
    case DType::IQ3_S:
      return read_iq3_s;
    case DType::IQ3_XXS:
      return read_iq3_xxs;
    case DType::IQ2_S:
      return read_iq2_s;
    default:
      return nullptr;
  }
}

}  // namespace slipring
