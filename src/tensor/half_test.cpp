#include "tensor/half.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace slipring {
namespace {

TEST(Half, EveryF16SurvivesTheWayToFloatAndBack) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f32_from_f16(half);
    const uint16_t back = f16_from_f32(value);
    if (std::isnan(value)) {
      EXPECT_EQ(back, half | 0x200) << bits;  // signalling becomes quiet
    } else {
      ASSERT_EQ(back, half) << bits;
    }
  }
}

TEST(Half, F16RoundsToNearestAndTiesToEven) {
  // Between each pair of neighbours: just below the middle goes down, just above goes up, the middle to the even one.
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const float above = high == 0x7C00 ? 65536.0F : f32_from_f16(high);
    const float middle = (f32_from_f16(low) + above) / 2;
    const uint16_t even = bits % 2 == 0 ? low : high;
    ASSERT_EQ(f16_from_f32(middle), even) << bits;
    ASSERT_EQ(f16_from_f32(std::nextafter(middle, 0.0F)), low) << bits;
    ASSERT_EQ(f16_from_f32(std::nextafter(middle, 1e9F)), high) << bits;
    ASSERT_EQ(f16_from_f32(-middle), even | 0x8000) << bits;
  }
  EXPECT_EQ(f16_from_f32(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_EQ(f16_from_f32(1e9F), 0x7C00);
}

TEST(Half, Bf16RoundsToNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    ASSERT_EQ(bf16_from_f32(f32_from_bf16(low)), low);
    const auto middle = std::bit_cast<float>((bits << 16U) | 0x8000U);
    const auto even = static_cast<uint16_t>(bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(bf16_from_f32(middle), even) << bits;
    ASSERT_EQ(bf16_from_f32(std::bit_cast<float>((bits << 16U) | 0x8001U)), bits + 1) << bits;
    ASSERT_EQ(bf16_from_f32(std::bit_cast<float>((bits << 16U) | 0x7FFFU)), bits) << bits;
  }
  EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(std::bit_cast<float>(0x7F800001U)))));
}

}  // namespace
}  // namespace slipring
