// Scales of K-type groups, six bits each, packed into twelve bytes.
#pragma once

#include <cstdint>

namespace slipring {

/// Q4_K and Q5_K: eight scales and eight minima, 0 to 63.
struct KScales {
  uint8_t scale[8];
  uint8_t min[8];
};

/// Bytes 0-3 hold the low six bits of scales 0-3, bytes 4-7 of minima 0-3; bytes 8-11 the low four bits of scales and
/// minima 4-7, whose upper two bits fill the first eight bytes' upper ends.
inline KScales unpack_k_scales(const uint8_t* packed) {
  KScales k;
  for (int i = 0; i < 4; ++i) {
    k.scale[i] = packed[i] & 63;
    k.min[i] = packed[i + 4] & 63;
    k.scale[i + 4] = static_cast<uint8_t>((packed[i + 8] & 15) | ((packed[i] >> 6) << 4));
    k.min[i + 4] = static_cast<uint8_t>((packed[i + 8] >> 4) | ((packed[i + 4] >> 6) << 4));
  }
  return k;
}

inline void pack_k_scales(const KScales& k, uint8_t* packed) {
  for (int i = 0; i < 4; ++i) {
    packed[i] = static_cast<uint8_t>(k.scale[i] | ((k.scale[i + 4] >> 4) << 6));
    packed[i + 4] = static_cast<uint8_t>(k.min[i] | ((k.min[i + 4] >> 4) << 6));
    packed[i + 8] = static_cast<uint8_t>((k.scale[i + 4] & 15) | ((k.min[i + 4] & 15) << 4));
  }
}

/// Q3_K: sixteen scales, 0 to 63. Bytes 0-7 hold the low four bits of scales i and i + 8; bytes 8-11 the upper two bits
/// of scales i, i + 4, i + 8, i + 12.
inline void unpack_q3_scales(const uint8_t* packed, uint8_t* scales) {
  for (int i = 0; i < 16; ++i) {
    const int low = (packed[i % 8] >> (i / 8 * 4)) & 15;
    const int high = (packed[8 + i % 4] >> (i / 4 * 2)) & 3;
    scales[i] = static_cast<uint8_t>(low | (high << 4));
  }
}

inline void pack_q3_scales(const uint8_t* scales, uint8_t* packed) {
  for (int i = 0; i < 8; ++i) packed[i] = static_cast<uint8_t>((scales[i] & 15) | ((scales[i + 8] & 15) << 4));
  for (int i = 0; i < 4; ++i) {
    packed[8 + i] = static_cast<uint8_t>((scales[i] >> 4) | ((scales[i + 4] >> 4) << 2) | ((scales[i + 8] >> 4) << 4) |
                                         ((scales[i + 12] >> 4) << 6));
  }
}

}  // namespace slipring
