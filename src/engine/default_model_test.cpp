#include <filesystem>
#include <gtest/gtest.h>

#include <slipring/model.h>

namespace slipring {
namespace {

TEST(DefaultModel, IsFoundFromAnyWorkingFolder) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path("/");
  const auto model = default_model_path();
  const auto drafter = default_drafter_path();
  std::filesystem::current_path(before);
  EXPECT_TRUE(model.is_absolute());
  EXPECT_GT(std::filesystem::file_size(model), 1'000'000U);
  EXPECT_GT(std::filesystem::file_size(drafter), 1'000'000U);
}

TEST(DefaultModel, ThePairIsSmallEnoughToShip) {
  EXPECT_LE(std::filesystem::file_size(default_model_path()) + std::filesystem::file_size(default_drafter_path()),
            15U << 20U);
}

}  // namespace
}  // namespace slipring
