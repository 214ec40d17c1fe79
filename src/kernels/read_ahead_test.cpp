#include "kernels/read_ahead.h"

#include <array>
#include <gtest/gtest.h>

namespace slipring {
namespace {

using Starts = std::array<const uint8_t*, 2>;

TEST(ReadAhead, SaysWhatCameNextTheLastTime) {
  static constexpr std::array<uint8_t, 64> kMemory{};
  const auto at = [](size_t i) { return Starts{&kMemory[2 * i], &kMemory[2 * i + 1]}; };
  ReadAhead order;
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(order.reading(at(i)).empty());  // never seen before
  for (size_t i = 0; i < 4; ++i) {
    const auto next = order.reading(at(i));
    ASSERT_EQ(next.size(), 2U);
    EXPECT_EQ(next[0], at((i + 1) % 4)[0]);
    EXPECT_EQ(next[1], at((i + 1) % 4)[1]);
  }
  order.reading(at(0));
  order.reading(at(2));  // another order from now on
  EXPECT_EQ(order.reading(at(0))[0], at(2)[0]);
}

TEST(ReadAhead, ForgetsRatherThanGrows) {
  static constexpr std::array<uint8_t, 10000> kMemory{};
  ReadAhead order;
  for (size_t i = 0; i + 1 < kMemory.size(); ++i) EXPECT_TRUE(order.reading(Starts{&kMemory[i], &kMemory[i]}).empty());
}

}  // namespace
}  // namespace slipring
