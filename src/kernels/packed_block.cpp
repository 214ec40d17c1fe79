#include "kernels/packed_block.h"

#include <bit>
#include <cstring>

#include "tensor/half.h"

namespace slipring {
namespace {

float f16_at(const uint8_t* halves, int lane) {
  uint16_t bits = 0;
  std::memcpy(&bits, halves + 2 * lane, 2);
  return f32_from_f16(bits);
}

void read_scales(const PackedLayout& layout, const uint8_t* tile, int64_t block, int lane, PlainBlock& out) {
  const uint8_t* scales = tile + (layout.is_super() ? block / 8 : block) * layout.scale_bytes();
  out.min[0] = out.min[1] = 0.0F;
  switch (layout.scales) {
    case Scales::f16:
      out.scale[0] = f16_at(scales, lane);
      return;
    case Scales::f16_min:
      out.scale[0] = f16_at(scales, lane);
      out.min[0] = -f16_at(scales + 32, lane);
      return;
    case Scales::e8m0: {
      // 2^(e - 128): the table's values are doubled. Exponents 0 and 1 give subnormal numbers.
      const uint32_t e = scales[lane];
      out.scale[0] = std::bit_cast<float>(e < 2 ? 0x200000U << e : (e - 1) << 23);
      return;
    }
    case Scales::super: {
      const float d = f16_at(scales, lane) / static_cast<float>(layout.divisor);
      const uint8_t* sub = scales + 32 + block % 8 * layout.subs() * 16;
      for (int i = 0; i < layout.subs(); ++i) {
        out.scale[i] = d * static_cast<float>(static_cast<int8_t>(sub[16 * i + lane]));
      }
      return;
    }
    case Scales::super_min: {
      const uint8_t* sub = scales + 64 + block % 8 * 32;
      out.scale[0] = f16_at(scales, lane) * static_cast<float>(sub[lane]);
      out.min[0] = f16_at(scales + 32, lane) * static_cast<float>(sub[16 + lane]);
      return;
    }
    case Scales::super_nibbles: {
      const uint8_t* sub = scales + 64 + block % 8 * 32;
      for (int i = 0; i < 2; ++i) {
        out.scale[i] = f16_at(scales, lane) * static_cast<float>(sub[16 * i + lane] & 15);
        out.min[i] = f16_at(scales + 32, lane) * static_cast<float>(sub[16 * i + lane] >> 4);
      }
      return;
    }
  }
}

/// The unsigned integers of 32 columns.
void read_integers(const PackedLayout& layout, const uint8_t* planes, int lane, uint8_t* out) {
  const uint8_t* high = planes + layout.low_bits * 64;
  const int vectors = layout.low_bits;  // of 64 bytes in the low plane, each with 8 / low_bits groups
  for (int group = 0; group < 8; ++group) {
    for (int i = 0; i < 4; ++i) {
      const int byte = 4 * lane + i;
      // 4-bit planes pair groups v and v + 4; 2-bit planes hold four neighbours.
      const int vector = layout.low_bits == 4 ? group % 4 : group * vectors / 8;
      const int place = layout.low_bits == 4 ? group / 4 : group % (8 / vectors);
      uint32_t q = (planes[64 * vector + byte] >> (place * layout.low_bits)) & ((1U << layout.low_bits) - 1U);
      if (layout.high_bits == 1) q |= ((high[byte] >> group) & 1U) << layout.low_bits;
      if (layout.high_bits == 2) q |= ((high[64 * (group / 4) + byte] >> (2 * (group % 4))) & 3U) << layout.low_bits;
      out[4 * group + i] = static_cast<uint8_t>(q);
    }
  }
}

uint16_t half_bits(const uint8_t* halves, int lane) {
  uint16_t bits = 0;
  std::memcpy(&bits, halves + 2 * lane, 2);
  return bits;
}

}  // namespace

PlainBlock plain_block(const PackedLayout& layout, const uint8_t* tile, int64_t cols, int64_t block, int lane) {
  PlainBlock out;  // NOLINT: filled below
  read_scales(layout, tile, block, lane, out);
  uint8_t integers[kBlock];
  read_integers(layout, tile + layout.scales_per_tile(cols) + block * layout.plane_bytes(), lane, integers);
  const auto table = table_values(layout.table);
  for (int i = 0; i < kBlock; ++i) {
    const uint8_t q = integers[i];
    out.q[i] = layout.table == Table::none ? q - layout.offset : table[q];
  }
  return out;
}

void unpack_block(const PackedLayout& layout, const uint8_t* tile, int64_t cols, int64_t index, int lane,
                  SourceBlock& out) {
  out = {};
  const uint8_t* scales = tile + index * layout.scale_bytes();
  if (layout.scales == Scales::e8m0) {
    out.scale[0] = scales[lane];
  } else {
    out.d = half_bits(scales, lane);
    if (layout.has_min()) out.dmin = half_bits(scales + 32, lane);
  }
  const uint8_t* subs = scales + (layout.has_min() ? 64 : 32);
  switch (layout.scales) {
    case Scales::super:
      for (int i = 0; i < 8 * layout.subs(); ++i) out.scale[i] = subs[16 * i + lane];
      break;
    case Scales::super_min:
      for (int i = 0; i < 8; ++i) {
        out.scale[i] = subs[32 * i + lane];
        out.min[i] = subs[32 * i + 16 + lane];
      }
      break;
    case Scales::super_nibbles:
      for (int i = 0; i < 16; ++i) out.scale[i] = subs[16 * i + lane];
      break;
    default:
      break;
  }
  const int64_t parts = layout.is_super() ? kSuperBlock / kBlock : 1;
  const uint8_t* planes = tile + layout.scales_per_tile(cols) + index * parts * layout.plane_bytes();
  for (int64_t part = 0; part < parts; ++part) {
    uint8_t integers[kBlock];
    read_integers(layout, planes + part * layout.plane_bytes(), lane, integers);
    std::memcpy(out.words + part * (kBlock / 4), integers, kBlock);
  }
}

}  // namespace slipring
