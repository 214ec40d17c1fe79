// Two readers of one format, written apart: the packed matrices of the kernels and the codecs of the file formats give
// the same values, bit for bit, in every type that has a kernel.
#include <bit>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "formats/codec.h"
#include "kernels/packed_matrix.h"
#include "kernels/random_weights.h"

namespace slipring {
namespace {

class PackedCodec : public ::testing::TestWithParam<DType> {};

TEST_P(PackedCodec, RowsAreTheCodecsRows) {
  constexpr int64_t kRows = 37;  // not whole tiles
  constexpr int64_t kCols = 768;
  ThreadPool pool(2);
  for (const uint32_t seed : {1U, 2U}) {
    const Tensor source = testing::random_weights(GetParam(), kRows, kCols, seed);
    const PackedMatrix packed = PackedMatrix::pack(source, pool);
    ASSERT_EQ(packed.rows(), kRows);
    ASSERT_EQ(packed.cols(), kCols);
    std::vector<float> expected(kRows * kCols);
    dequantise(GetParam(), source.raw(), kRows * kCols, expected.data());
    std::vector<float> row(kCols);
    for (int64_t r = 0; r < kRows; ++r) {
      packed.dequantise_row(r, row.data());
      for (int64_t k = 0; k < kCols; ++k) {
        const float want = expected[static_cast<size_t>(r * kCols + k)];
        ASSERT_EQ(std::bit_cast<uint32_t>(row[static_cast<size_t>(k)]), std::bit_cast<uint32_t>(want))
            << "row " << r << " column " << k << ": " << row[static_cast<size_t>(k)] << " for " << want;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PackedCodec, ::testing::ValuesIn(testing::weight_types()),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace slipring
