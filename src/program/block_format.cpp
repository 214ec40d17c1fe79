#include "program/block_format.h"

#include <cmath>
#include <cstring>
#include <string>

#include <slipring/error.h>

#include "tensor/half.h"

namespace slipring {
namespace {

constexpr int kExponentBias = 128;  ///< of MXFP4: its levels are doubled

int most_of_scale(Scales scales) {
  return scales == Scales::super_nibbles ? 15 : scales == Scales::super_min ? 63 : 127;
}

}  // namespace

std::optional<BlockFormat> block_format(DType dtype) {
  const PackedLayout* layout = layout_of(dtype);
  if (layout == nullptr) return std::nullopt;
  const int bits = layout->low_bits + layout->high_bits;
  BlockFormat format;
  format.bits = layout->table == Table::none && bits <= 4 ? 4 : 8;
  format.size = layout->sub_block;
  format.group = layout->is_super() ? kSuperBlock : kBlock;
  if (layout->table == Table::none) format.center = layout->has_min() ? 1 << (bits - 1) : layout->offset;
  format.wide_d = layout->scales == Scales::e8m0 || layout->divisor > 1;
  format.sub_scales = layout->is_super();
  format.minima = layout->has_min();
  format.sub_minima = format.minima && layout->is_super();
  return format;
}

BlockCodec::BlockCodec(DType dtype) : dtype_(dtype), layout_(*layout_of(dtype)), format_(*block_format(dtype)) {
  code_of_.fill(-1);
  const auto table = table_values(layout_.table);
  for (int code = (1 << (layout_.low_bits + layout_.high_bits)) - 1; code >= 0; --code) {
    const int value = layout_.table == Table::none ? code - format_.center : table[static_cast<size_t>(code)];
    const auto element = static_cast<uint8_t>(value + format_.zero());
    element_of_[static_cast<size_t>(code)] = element;
    code_of_[element] = static_cast<int16_t>(code);  // MXFP4 has two zeros: the first one stands for both
  }
}

void BlockCodec::damaged(const char* what) const {
  throw Error(ErrorCode::bad_file, {.where = "weights of type " + std::string(to_string(dtype_)),
                                    .expected = std::string(what) + " that the type has",
                                    .got = "others",
                                    .advice = "export the model again"});
}

BlockGroup BlockCodec::to_file(const SourceBlock& block) const {
  BlockGroup group{};
  std::memcpy(group.elements.data(), block.words, static_cast<size_t>(format_.group));
  for (size_t i = 0; i < static_cast<size_t>(format_.group); ++i) {
    group.elements[i] = element_of_[group.elements[i]];
  }
  if (layout_.scales == Scales::e8m0) {
    group.d = std::ldexp(1.0F, block.scale[0] - kExponentBias);
    return group;
  }
  group.d = f32_from_f16(block.d) / static_cast<float>(layout_.divisor);
  group.dmin = block.dmin;
  if (!format_.sub_scales) return group;
  const bool nibbles = layout_.scales == Scales::super_nibbles;
  for (size_t i = 0; i < static_cast<size_t>(format_.group / format_.size); ++i) {
    group.s[i] = static_cast<int8_t>(nibbles ? block.scale[i] & 15 : block.scale[i]);
    if (format_.sub_minima) group.m[i] = static_cast<int8_t>(nibbles ? block.scale[i] >> 4 : block.min[i]);
  }
  return group;
}

SourceBlock BlockCodec::from_file(const BlockGroup& group) const {
  std::array<uint8_t, 256> codes{};
  for (size_t i = 0; i < static_cast<size_t>(format_.group); ++i) {
    const int16_t code = code_of_[group.elements[i]];
    if (code < 0) damaged("elements");
    codes[i] = static_cast<uint8_t>(code);
  }
  SourceBlock block{};
  std::memcpy(block.words, codes.data(), static_cast<size_t>(format_.group));
  if (layout_.scales == Scales::e8m0) {
    int exponent = 0;
    const bool power_of_two = std::frexp(group.d, &exponent) == 0.5F;
    const int e = exponent - 1 + kExponentBias;
    if (!power_of_two || e < 0 || e > 255) damaged("scales");
    block.scale[0] = static_cast<uint8_t>(e);
    return block;
  }
  block.d = f16_from_f32(group.d * static_cast<float>(layout_.divisor));
  block.dmin = group.dmin;
  if (!format_.sub_scales) return block;
  const int most = most_of_scale(layout_.scales);
  const bool nibbles = layout_.scales == Scales::super_nibbles;
  for (size_t i = 0; i < static_cast<size_t>(format_.group / format_.size); ++i) {
    const int s = group.s[i];
    const int m = group.m[i];
    if (format_.sub_minima && (s < 0 || s > most || m < 0 || m > most)) damaged("scales");
    block.scale[i] = static_cast<uint8_t>(nibbles ? s | m << 4 : s);
    if (format_.sub_minima && !nibbles) block.min[i] = static_cast<uint8_t>(m);
  }
  return block;
}

}  // namespace slipring
