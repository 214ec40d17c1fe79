#include <bit>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/targets.h"
#include "tensor/half.h"

namespace slipring {
namespace {

std::vector<float> awkward_floats() {
  std::vector<float> values = {0.0F,
                               -0.0F,
                               1.0F,
                               -2.5F,
                               65504.0F,
                               65519.9F,
                               65520.0F,
                               1e9F,
                               -1e9F,
                               0x1p-14F,
                               0x1p-24F,
                               0x1p-25F,
                               0x1.8p-25F,
                               0x1.8p-24F,
                               -0x1p-26F,
                               3.4e38F,
                               1e-40F,
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity()};
  // Ties and near ties of both formats around many exponents.
  for (uint32_t exponent = 100; exponent < 145; ++exponent) {
    for (const uint32_t mantissa :
         {0x0FFFU, 0x1000U, 0x1001U, 0x3000U, 0x7FFFU, 0x8000U, 0x8001U, 0x18000U, 0x7FFFFFU}) {
      values.push_back(std::bit_cast<float>(exponent << 23 | mantissa));
    }
  }
  return values;
}

TEST(Convert, EveryHalfSurvivesTheRoundTripOnEveryTarget) {
  std::vector<uint16_t> halves(65536);
  for (uint32_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  for (const std::string& target : available_targets()) {
    use_target(target);
    std::vector<float> floats(halves.size());
    std::vector<uint16_t> back(halves.size());
    f16_to_f32(halves.data(), 65536, floats.data());
    f32_to_f16(floats.data(), 65536, back.data());
    for (uint32_t i = 0; i < halves.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), std::bit_cast<uint32_t>(f32_from_f16(halves[i]))) << target << i;
      const bool is_nan = (i & 0x7FFFU) > 0x7C00U;
      ASSERT_EQ(back[i], is_nan ? (i | 0x200U) : i) << target;
    }
  }
  use_target("");
}

// Against the definition of rounding itself: no other half is nearer, and a tie goes to the even one.
TEST(Convert, HalvesAreTheNearestAndTiesGoToEven) {
  for (const float value : awkward_floats()) {
    const uint16_t half = f16_from_f32(value);
    if (std::fabs(value) >= 65520.0F) {
      EXPECT_EQ(half & 0x7FFF, 0x7C00) << value;
      continue;
    }
    const double error = std::fabs(static_cast<double>(f32_from_f16(half)) - value);
    for (const int step : {-1, 1}) {
      if ((half & 0x7FFF) == 0 && step < 0) continue;
      const auto other = static_cast<uint16_t>(half + step);
      if ((other & 0x7FFF) == 0x7C00) continue;
      const double other_error = std::fabs(static_cast<double>(f32_from_f16(other)) - value);
      EXPECT_LE(error, other_error) << value;
      if (error == other_error) {
        EXPECT_EQ(half & 1, 0) << value;
      }
    }
  }
}

TEST(Convert, BuffersEqualSingleValuesOnEveryTarget) {
  const std::vector<float> values = awkward_floats();
  const auto count = static_cast<int64_t>(values.size());
  for (const std::string& target : available_targets()) {
    use_target(target);
    std::vector<uint16_t> f16(values.size());
    std::vector<uint16_t> bf16(values.size());
    std::vector<float> back(values.size());
    f32_to_f16(values.data(), count, f16.data());
    f32_to_bf16(values.data(), count, bf16.data());
    bf16_to_f32(bf16.data(), count, back.data());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(f16[i], f16_from_f32(values[i])) << target << " " << values[i];
      EXPECT_EQ(bf16[i], bf16_from_f32(values[i])) << target << " " << values[i];
      EXPECT_EQ(std::bit_cast<uint32_t>(back[i]), static_cast<uint32_t>(bf16[i]) << 16);
    }
  }
  use_target("");
}

TEST(Convert, BrainFloatsRoundToNearestEvenAndKeepNaN) {
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x3F808000U)), 0x3F80);  // tie, even stays
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x3F818000U)), 0x3F82);  // tie, odd goes up
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x3F808001U)), 0x3F81);
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x7F7FFFFFU)), 0x7F80);  // rounds to infinity
  EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(std::bit_cast<float>(0x7F800001U)))));
}

}  // namespace
}  // namespace slipring
