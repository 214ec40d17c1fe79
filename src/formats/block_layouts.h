// Bytes of GGUF's quantised blocks. Source: the GGUF specification and the gguf package's quants.py.
#pragma once

#include <cstdint>

#include <slipring/dtype.h>

namespace slipring::blocks {

// "d" and "m" are float16 bits. Two 4-bit numbers share a byte: element i in the low half, i + 16 (or + 32) in the
// high.

struct Q4_0 {  // d * (q - 8)
  uint16_t d;
  uint8_t q[16];
};
struct Q4_1 {  // d * q + m
  uint16_t d;
  uint16_t m;
  uint8_t q[16];
};
struct Q5_0 {  // d * (q - 16), fifth bits in `high`, bit i for element i
  uint16_t d;
  uint8_t high[4];
  uint8_t q[16];
};
struct Q5_1 {  // d * q + m
  uint16_t d;
  uint16_t m;
  uint8_t high[4];
  uint8_t q[16];
};
struct Q8_0 {  // d * q
  uint16_t d;
  int8_t q[32];
};

struct Q2_K {          // 16 groups of 16: d * scale * q - dmin * min
  uint8_t scales[16];  // scale in the low half, min in the high
  uint8_t q[64];       // byte b of each 32: elements b, b + 32, b + 64, b + 96, two bits each
  uint16_t d;
  uint16_t dmin;
};
struct Q3_K {        // 16 groups of 16: d * (scale - 32) * (q - 4)
  uint8_t high[32];  // third bits: bit j of byte b for element 32 j + b
  uint8_t q[64];     // as in Q2_K
  uint8_t scales[12];
  uint16_t d;
};
struct Q4_K {  // 8 groups of 32: d * scale * q - dmin * min
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t q[128];  // byte b of each 32: elements b and b + 32 of 64
};
struct Q5_K {  // as Q4_K, with fifth bits as in Q3_K
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t high[32];
  uint8_t q[128];
};
struct Q6_K {        // 16 groups of 16: d * scale * (q - 32)
  uint8_t q[128];    // low four bits: byte b of each 64: elements b and b + 64 of 128
  uint8_t high[64];  // upper two bits: byte b of each 32: elements b, b + 32, b + 64, b + 96 of 128
  int8_t scales[16];
  uint16_t d;
};

struct IQ4_NL {  // d * level[q]
  uint16_t d;
  uint8_t q[16];
};
struct IQ4_XS {  // 8 groups of 32: d * (scale - 32) * level[q]
  uint16_t d;
  uint16_t scales_high;  // upper two bits, two a group
  uint8_t scales_low[4];
  uint8_t q[128];
};
struct IQ3_XXS {  // 8 groups of 32: d * (0.5 + scale) * 0.5 * codeword * sign
  uint16_t d;
  uint8_t q[64];                 // codewords of 4 elements
  uint8_t scales_and_signs[32];  // little-endian words: 4 sign patterns of 7 bits, then the scale
};
struct IQ3_S {  // 8 groups of 32: d * (1 + 2 scale) * codeword * sign
  uint16_t d;
  uint8_t q[64];
  uint8_t high[8];  // ninth bits of the codewords' numbers
  uint8_t signs[32];
  uint8_t scales[4];
};
struct IQ2_S {  // 16 groups of 16: d * (0.5 + scale) * 0.25 * codeword * sign
  uint16_t d;
  uint8_t q[32];  // codewords of 8 elements
  uint8_t signs[32];
  uint8_t high[8];  // upper two bits of the codewords' numbers
  uint8_t scales[8];
};
struct MXFP4 {  // 2^(e - 128) * level[q]
  uint8_t e;
  uint8_t q[16];
};

// The compiler must not have added padding, and the sizes must be those that info() tells everyone.
static_assert(sizeof(Q4_0) == 18 && sizeof(Q4_1) == 20 && sizeof(Q5_0) == 22 && sizeof(Q5_1) == 24);
static_assert(sizeof(Q8_0) == 34 && sizeof(Q2_K) == 84 && sizeof(Q3_K) == 110 && sizeof(Q4_K) == 144);
static_assert(sizeof(Q5_K) == 176 && sizeof(Q6_K) == 210 && sizeof(IQ4_NL) == 18 && sizeof(IQ4_XS) == 136);
static_assert(sizeof(IQ3_XXS) == 98 && sizeof(IQ3_S) == 110 && sizeof(IQ2_S) == 82 && sizeof(MXFP4) == 17);

}  // namespace slipring::blocks
