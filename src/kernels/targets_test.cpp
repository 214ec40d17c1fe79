#include "kernels/targets.h"

#include <gtest/gtest.h>

#include <slipring/error.h>

namespace slipring {
namespace {

TEST(Targets, ScalarIsAlwaysThereAndLast) {
  const auto names = available_targets();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.back(), "scalar");
}

TEST(Targets, CanBeForcedAndReleased) {
  const std::string before = current_target();
  for (const std::string& name : available_targets()) {
    use_target(name);
    EXPECT_EQ(current_target(), name);
  }
  use_target("");
  EXPECT_EQ(current_target(), available_targets().front());
  use_target(before);
}

TEST(Targets, AnUnknownNameIsRefusedWithTheListOfThoseThereAre) {
  try {
    use_target("avx9000");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(error.info().expected.find("scalar"), std::string::npos);
    EXPECT_EQ(error.info().got, "\"avx9000\"");
  }
}

}  // namespace
}  // namespace slipring
