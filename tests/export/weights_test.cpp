// What a bundle holds of quantised weights: the very blocks, whatever the type.
#include <filesystem>
#include <gtest/gtest.h>
#include <unistd.h>

#include <slipring/error.h>

#include "fixtures.h"
#include "kernels/random_weights.h"
#include "program/block_format.h"
#include "program/weights_file.h"

namespace slipring {
namespace {

namespace fs = std::filesystem;

std::vector<float> row_of(const PackedMatrix& matrix, int64_t row) {
  std::vector<float> values(static_cast<size_t>(matrix.cols()));
  matrix.dequantise_row(row, values.data());
  return values;
}

class BlockTypes : public ::testing::TestWithParam<DType> {};

TEST_P(BlockTypes, ComeBackFromAFile) {
  const DType dtype = GetParam();
  const fs::path folder = fs::temp_directory_path() / ("slipring_weights_test_" + std::to_string(getpid()));
  fs::create_directories(folder);
  auto linear = std::make_shared<Linear>();
  linear->matrix = PackedMatrix::pack(testing::random_weights(dtype, 21, 512, 7), test::pool());
  linear->bias = Tensor::from(std::vector<float>(21, 0.25F), {21});
  Program program;
  program.constants.push_back({.name = "map", .weight = std::shared_ptr<const Linear>(linear)});
  const Program* const programs[] = {&program};
  SafetensorsWriter writer(folder / kWeightsFile);
  write_weights(programs, writer);
  writer.commit();
  WeightsFile file(folder, test::pool());
  const auto read = file.linear("map", dtype, 21, 512, true, false);
  for (int64_t row = 0; row < 21; ++row) {
    ASSERT_EQ(row_of(read->matrix, row), row_of(linear->matrix, row)) << "row " << row;
  }
  const bool codebook = dtype == DType::IQ3_S || dtype == DType::IQ3_XXS || dtype == DType::IQ2_S;
  EXPECT_EQ(read->matrix.dtype(), codebook ? DType::F32 : dtype);
  if (!codebook && dtype != DType::MXFP4) {  // MXFP4 has two zeros
    EXPECT_EQ(std::memcmp(read->matrix.tile(0), linear->matrix.tile(0), static_cast<size_t>(read->matrix.bytes())), 0);
  }
  EXPECT_THROW(file.linear("map", dtype, 21, 256, true, false), Error);
  EXPECT_THROW(file.linear("map", dtype, 22, 512, true, false), Error);
  fs::remove_all(folder);
}

std::vector<DType> quantised_types() {
  std::vector<DType> types;
  for (const DType type : testing::weight_types()) {
    if (is_quantised(type)) types.push_back(type);
  }
  return types;
}

INSTANTIATE_TEST_SUITE_P(All, BlockTypes, ::testing::ValuesIn(quantised_types()),
                         [](const auto& instance) { return std::string(to_string(instance.param)); });

TEST(BlockCodec, RefusesWhatATypeHasNoneOf) {
  const BlockCodec codec(DType::Q4_K);
  BlockGroup group = codec.to_file(SourceBlock{});
  EXPECT_NO_THROW(codec.from_file(group));
  group.s[3] = 64;
  EXPECT_THROW(codec.from_file(group), Error);
  group.s[3] = 0;
  group.m[0] = -1;
  EXPECT_THROW(codec.from_file(group), Error);
  const BlockCodec five_bits(DType::Q5_K);
  BlockGroup other = five_bits.to_file(SourceBlock{});
  other.elements[200] = 0;
  EXPECT_THROW(five_bits.from_file(other), Error);
  const BlockCodec exponents(DType::MXFP4);
  BlockGroup third = exponents.to_file(SourceBlock{});
  third.d = 0.3F;
  EXPECT_THROW(exponents.from_file(third), Error);
}

}  // namespace
}  // namespace slipring
