// Every weight format on every SIMD target of this machine against the scalar definition (the same bits), and the
// definition against a product in double precision.
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include <slipring/error.h>

#include "kernels/packed_matrix.h"
#include "kernels/quantised_activations.h"
#include "kernels/random_weights.h"
#include "kernels/targets.h"

namespace slipring {
namespace {

using testing::random_activations;
using testing::random_weights;

struct Problem {
  PackedMatrix weight;
  std::vector<float> x;
  std::vector<float> bias;
  int64_t rows;

  Problem(DType dtype, int64_t n, int64_t cols, int64_t m, ThreadPool& pool)
      : weight(PackedMatrix::pack(random_weights(dtype, n, cols, 7), pool)),
        x(random_activations(m * cols, 11)),
        bias(random_activations(n, 13)),
        rows(m) {}

  std::vector<float> multiply(ThreadPool& pool, bool with_bias = false) const {
    std::vector<float> y(static_cast<size_t>(rows * weight.rows()), std::numeric_limits<float>::quiet_NaN());
    Activations activations(x.data(), rows, weight.cols());
    const MatmulOutput output{&weight, y.data(), with_bias ? bias.data() : nullptr};
    matmul(activations, {&output, 1}, pool);
    return y;
  }
  std::vector<float> multiply_scalar(bool with_bias = false) const {
    std::vector<float> y(static_cast<size_t>(rows * weight.rows()), std::numeric_limits<float>::quiet_NaN());
    Activations activations(x.data(), rows, weight.cols());
    const MatmulOutput output{&weight, y.data(), with_bias ? bias.data() : nullptr};
    matmul_scalar(activations, {&output, 1});
    return y;
  }
};

class Matmul : public ::testing::TestWithParam<DType> {
 protected:
  ~Matmul() override { use_target(""); }
  ThreadPool pool_{3};
  std::vector<int64_t> some_cols() const {
    const int64_t block = info(GetParam()).block_elements;
    if (block == 1) return {1, 2, 31, 64, 259};
    return {block, 3 * block};
  }
};

TEST_P(Matmul, EveryTargetGivesTheBitsOfTheDefinition) {
  for (const int64_t cols : some_cols()) {
    for (const int64_t n : {1, 15, 16, 33}) {
      for (const int64_t m : {1, 2, 3, 5, 8, 17, 39}) {
        const Problem problem(GetParam(), n, cols, m, pool_);
        const std::vector<float> expected = problem.multiply_scalar(m == 3);
        for (const std::string& target : available_targets()) {
          use_target(target);
          ASSERT_EQ(problem.multiply(pool_, m == 3), expected)
              << target << " n " << n << " cols " << cols << " m " << m;
        }
      }
    }
  }
}

// The second pass over what the first rounding left out: the definition's bits, alone or in a batch, and errors far
// below those of one pass.
TEST_P(Matmul, FineActivationsAreTheDefinitionAndFarMoreExact) {
  if (info(GetParam()).block_elements == 1) GTEST_SKIP() << "float weights take float activations";
  constexpr int64_t kCols = 512;
  constexpr int64_t kRows = 33;
  constexpr int64_t kBatch = 19;
  const Problem problem(GetParam(), kRows, kCols, kBatch, pool_);
  const auto multiply = [&](int64_t first, int64_t count, bool fine, bool scalar) {
    std::vector<float> y(static_cast<size_t>(count * kRows));
    Activations activations(problem.x.data() + first * kCols, count, kCols);
    const MatmulOutput output{.weight = &problem.weight, .y = y.data(), .bias = nullptr, .fine_activations = fine};
    if (scalar) {
      matmul_scalar(activations, {&output, 1});
    } else {
      matmul(activations, {&output, 1}, pool_);
    }
    return y;
  };
  const auto fine = multiply(0, kBatch, true, false);
  const auto coarse = multiply(0, kBatch, false, false);
  ASSERT_EQ(fine, multiply(0, kBatch, true, true));
  for (int64_t row = 0; row < kBatch; ++row) {
    ASSERT_EQ(multiply(row, 1, true, false),
              std::vector<float>(fine.begin() + row * kRows, fine.begin() + (row + 1) * kRows));
  }
  double fine_error = 0;
  double coarse_error = 0;
  std::vector<float> w(static_cast<size_t>(kCols));
  for (int64_t r = 0; r < kRows; ++r) {
    problem.weight.dequantise_row(r, w.data());
    for (int64_t m = 0; m < kBatch; ++m) {
      double exact = 0;
      for (int64_t k = 0; k < kCols; ++k)
        exact += static_cast<double>(problem.x[static_cast<size_t>(m * kCols + k)]) * w[static_cast<size_t>(k)];
      const auto i = static_cast<size_t>(m * kRows + r);
      fine_error += std::abs(fine[i] - exact);
      coarse_error += std::abs(coarse[i] - exact);
    }
  }
  EXPECT_LT(fine_error * 50, coarse_error);
}

TEST_P(Matmul, ARowAloneGivesItsBitsInABatchOnAnyNumberOfThreads) {
  constexpr int64_t kCols = 512;
  const Problem batch(GetParam(), 80, kCols, 37, pool_);
  const std::vector<float> expected = batch.multiply(pool_);
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    ASSERT_EQ(batch.multiply(pool), expected) << threads;
    for (int64_t row = 0; row < batch.rows; ++row) {
      Problem alone = batch;
      alone.rows = 1;
      alone.x.assign(batch.x.begin() + row * kCols, batch.x.begin() + (row + 1) * kCols);
      const std::vector<float> y = alone.multiply(pool);
      ASSERT_EQ(y, std::vector<float>(expected.begin() + row * 80, expected.begin() + (row + 1) * 80)) << row;
    }
  }
}

// Rounding errors: K float operations, and for quantised weights half a step of the activations' integers in each
// element.
TEST_P(Matmul, IsNearTheProductInDoublePrecision) {
  for (const int64_t cols : {int64_t{256}, int64_t{1024}}) {
    const Problem problem(GetParam(), 20, cols, 4, pool_);
    const std::vector<float> y = problem.multiply(pool_);
    std::vector<float> w(static_cast<size_t>(cols));
    for (int64_t row = 0; row < 20; ++row) {
      problem.weight.dequantise_row(row, w.data());
      for (int64_t m = 0; m < 4; ++m) {
        double exact = 0;
        double bound = 0;
        for (int64_t block = 0; block < cols; block += 32) {
          float most = 0;
          for (int64_t k = block; k < block + 32; ++k) {
            most = std::max(most, std::fabs(problem.x[static_cast<size_t>(m * cols + k)]));
          }
          for (int64_t k = block; k < block + 32; ++k) {
            const double weight = w[static_cast<size_t>(k)];
            const double value = problem.x[static_cast<size_t>(m * cols + k)];
            exact += weight * value;
            bound += std::fabs(weight * value) * static_cast<double>(cols) * 0x1p-24;
            if (problem.weight.integer_activations()) bound += std::fabs(weight) * most / 254.0 * 1.001;
          }
        }
        // Formats with minima subtract large sums: their rounding counts as well.
        if (problem.weight.integer_activations()) bound *= 1.05;
        ASSERT_NEAR(y[static_cast<size_t>(m * 20 + row)], exact, bound) << "row " << row << " cols " << cols;
      }
    }
  }
}

TEST_P(Matmul, OutputsThatShareActivationsEqualThoseComputedAlone) {
  const Problem first(GetParam(), 40, 256, 5, pool_);
  const Problem second(DType::F16, 17, 256, 5, pool_);
  std::vector<float> y1(40 * 5);
  std::vector<float> y2(17 * 5);
  Activations x(first.x.data(), 5, 256);
  const MatmulOutput outputs[] = {{&first.weight, y1.data()}, {&second.weight, y2.data()}};
  matmul(x, outputs, pool_);
  EXPECT_EQ(y1, first.multiply(pool_));
  EXPECT_EQ(y2, second.multiply(pool_));
}

TEST_P(Matmul, BytesHeldAreNearThoseOfTheSource) {
  const Tensor source = random_weights(GetParam(), 64, 2048, 3);
  const PackedMatrix packed = PackedMatrix::pack(source, pool_);
  const DType type = GetParam();
  const bool codebook = type == DType::IQ3_S || type == DType::IQ3_XXS || type == DType::IQ2_S;
  const double share = codebook ? 1.42 : 1.04;  // see packed_layout.h
  EXPECT_LE(static_cast<double>(packed.bytes()), share * static_cast<double>(source.bytes()));
}

TEST_P(Matmul, ANonFiniteActivationShowsInEveryResultOfItsRowOnly) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const std::string& target : available_targets()) {
      use_target(target);
      Problem problem(GetParam(), 16, 256, 3, pool_);
      problem.x[256 + 70] = bad;
      const std::vector<float> y = problem.multiply(pool_);
      for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isfinite(y[i]), i / 16 != 1) << target << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Matmul, ::testing::ValuesIn(testing::weight_types()),
                         [](const auto& test) { return std::string(to_string(test.param)); });

// A worked example, so that the whole is tied to numbers that a reader can check.
TEST(PackedMatrix, MultipliesSmallNumbersByHand) {
  ThreadPool pool(1);
  const float w[] = {1, 2, 3, 4, 5, 6};
  const PackedMatrix weight = PackedMatrix::pack(Tensor::from(w, {2, 3}), pool);
  const float x[] = {1, 10, 100, 2, 0, -1};
  float y[4];
  Activations activations(x, 2, 3);
  const MatmulOutput output{&weight, y};
  matmul(activations, {&output, 1}, pool);
  EXPECT_EQ(y[0], 321.0F);
  EXPECT_EQ(y[1], 654.0F);
  EXPECT_EQ(y[2], -1.0F);
  EXPECT_EQ(y[3], 2.0F);
}

TEST(PackedMatrix, RowsComeBackExactly) {
  ThreadPool pool(2);
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    const Tensor source = random_weights(dtype, 21, 37, 5);
    const PackedMatrix packed = PackedMatrix::pack(source, pool);
    std::vector<float> row(37);
    for (int64_t r = 0; r < 21; ++r) {
      packed.dequantise_row(r, row.data());
      for (int64_t k = 0; k < 37; ++k) {
        const int64_t i = r * 37 + k;
        const float expected = dtype == DType::F32   ? source.data<float>()[i]
                               : dtype == DType::F16 ? f32_from_f16(source.data<uint16_t>()[i])
                                                     : f32_from_bf16(source.data<uint16_t>()[i]);
        ASSERT_EQ(row[static_cast<size_t>(k)], expected);
      }
    }
  }
}

// Q8_0 by its definition: d * q.
TEST(PackedMatrix, DequantisesQ8AsItsFormatSays) {
  ThreadPool pool(2);
  const Tensor source = random_weights(DType::Q8_0, 19, 96, 5);
  const PackedMatrix packed = PackedMatrix::pack(source, pool);
  std::vector<float> row(96);
  for (int64_t r = 0; r < 19; ++r) {
    packed.dequantise_row(r, row.data());
    for (int64_t k = 0; k < 96; ++k) {
      const uint8_t* block = source.data<uint8_t>() + (r * 3 + k / 32) * 34;
      uint16_t d = 0;
      std::memcpy(&d, block, 2);
      const auto q = static_cast<int8_t>(block[2 + k % 32]);
      ASSERT_EQ(row[static_cast<size_t>(k)], f32_from_f16(d) * static_cast<float>(q));
    }
  }
}

TEST(PackedMatrix, RefusesTypesWithoutAKernel) {
  ThreadPool pool(1);
  try {
    PackedMatrix::pack(Tensor(DType::I32, {4, 4}), pool);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_EQ(error.info().got, "I32");
  }
}

TEST(QuantisedActivations, EveryTargetEqualsTheDefinition) {
  std::vector<float> x = random_activations(5 * 160, 3);
  for (int i = 0; i < 32; ++i) x[static_cast<size_t>(i)] = 0.0F;
  for (int i = 32; i < 64; ++i) x[static_cast<size_t>(i)] *= 1e-37F;
  for (int i = 64; i < 96; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i - 80) + 0.5F;  // ties
  x[100] = std::numeric_limits<float>::infinity();
  x[200] = std::numeric_limits<float>::quiet_NaN();
  QuantisedActivations expected(5, 160);
  for (int64_t row = 0; row < 5; ++row) quantise_row_scalar(x.data() + row * 160, row, expected);
  for (const std::string& target : available_targets()) {
    use_target(target);
    QuantisedActivations got(5, 160);
    for (int64_t row = 0; row < 5; ++row) quantise_row(x.data() + row * 160, row, got);
    for (int64_t i = 0; i < 5 * 160; ++i) {
      ASSERT_EQ(got.q.data<int8_t>()[i], expected.q.data<int8_t>()[i]) << target << " " << i;
    }
    for (size_t i = 0; i < expected.scale.size(); ++i) {
      if (std::isnan(expected.scale[i])) {
        EXPECT_TRUE(std::isnan(got.scale[i]));
        continue;
      }
      EXPECT_EQ(got.scale[i], expected.scale[i]);
      EXPECT_EQ(got.negative_scaled_sum[i], expected.negative_scaled_sum[i]);
    }
    EXPECT_EQ(got.negative_sum, expected.negative_sum);
    EXPECT_EQ(got.negative_half_sum, expected.negative_half_sum);
  }
  use_target("");
}

TEST(QuantisedActivations, ErrsByHalfAStepAtMost) {
  const std::vector<float> x = random_activations(64, 17);
  QuantisedActivations made(1, 64);
  quantise_row(x.data(), 0, made);
  for (int64_t i = 0; i < 64; ++i) {
    const float scale = made.scale[static_cast<size_t>(i / 32)];
    const float back = scale * static_cast<float>(made.q.data<int8_t>()[i]);
    EXPECT_LE(std::fabs(back - x[static_cast<size_t>(i)]), 0.5001F * scale);
  }
}

}  // namespace
}  // namespace slipring
