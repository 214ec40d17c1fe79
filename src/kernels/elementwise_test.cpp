#include "kernels/elementwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "kernels/targets.h"

namespace slipring {
namespace {

std::vector<float> random_values(int64_t count, unsigned seed, float size = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, size);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = normal(random);
  return out;
}

/// Floats between a and b, both included; negative and positive zero are one.
int64_t ulps(float a, float b) {
  const auto order = [](float x) {
    const auto bits = std::bit_cast<int32_t>(x);
    return bits < 0 ? int64_t{INT32_MIN} - bits : int64_t{bits};
  };
  return std::abs(order(a) - order(b));
}

/// Every value that matters to an activation: a dense grid over [-limit, limit] and the neighbourhood of zero.
std::vector<float> sweep(float limit) {
  std::vector<float> out;
  for (int i = -100000; i <= 100000; ++i) out.push_back(limit * static_cast<float>(i) / 100000.0F);
  for (int e = -40; e < 0; ++e) {
    for (const float m : {1.0F, 1.37F, 1.93F}) {
      out.push_back(std::ldexp(m, e));
      out.push_back(-std::ldexp(m, e));
    }
  }
  return out;
}

using Kernel = std::function<std::vector<float>(ThreadPool&)>;

/// The same bits on one, two and three threads and on every target.
void expect_same_bits_everywhere(const Kernel& kernel) {
  ThreadPool one(1);
  const std::vector<float> expected = kernel(one);
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    EXPECT_TRUE(kernel(pool) == expected) << threads << " threads";
  }
  for (const std::string& target : available_targets()) {
    use_target(target);
    EXPECT_TRUE(kernel(one) == expected) << target;
  }
  use_target("");
}

void expect_close(const std::vector<float>& got, const std::vector<float>& x,
                  const std::function<double(double)>& definition, int64_t limit) {
  int64_t worst = 0;
  float at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto expected = static_cast<float>(definition(x[i]));
    if (std::fabs(expected) < 1e-37F) continue;  // the kernels flush what is near the subnormals
    if (const int64_t distance = ulps(got[i], expected); distance > worst) {
      worst = distance;
      at = x[i];
    }
  }
  EXPECT_LE(worst, limit) << "at " << at;
}

TEST(Elementwise, ActivationsAreWithinAFewUlpOfTheirDefinitions) {
  const std::vector<float> x = sweep(80.0F);
  const std::vector<float> ones(x.size(), 1.0F);
  std::vector<float> out(x.size());
  const auto count = static_cast<int64_t>(x.size());
  ThreadPool pool(1);
  gated_activation(Activation::silu, x.data(), ones.data(), count, out.data(), pool);
  expect_close(
      out, x, [](double g) { return g / (1.0 + std::exp(-g)); }, 4);
  sigmoid_gate(ones.data(), x.data(), count, out.data(), pool);
  expect_close(
      out, x, [](double g) { return 1.0 / (1.0 + std::exp(-g)); }, 3);
  softcap(x.data(), 1.0F, count, out.data(), pool);
  expect_close(
      out, x, [](double g) { return std::tanh(g); }, 2);
  softcap(x.data(), 30.0F, count, out.data(), pool);
  expect_close(
      out, x, [](double g) { return 30.0 * std::tanh(g / 30.0); }, 4);
  gated_activation(Activation::gelu_erf, x.data(), ones.data(), count, out.data(), pool);
  expect_close(
      out, x, [](double g) { return 0.5 * g * std::erfc(-g / std::sqrt(2.0)); }, 2);
}

TEST(Elementwise, GeluWithTanhIsCloseToItsDefinition) {
  // The tail is e^-2z of a rounded 2z: its relative error grows with z, so the bound is relative to |x|, not to
  // gelu(x).
  const std::vector<float> x = sweep(12.0F);
  const std::vector<float> ones(x.size(), 1.0F);
  std::vector<float> out(x.size());
  ThreadPool pool(1);
  gated_activation(Activation::gelu_tanh, x.data(), ones.data(), static_cast<int64_t>(x.size()), out.data(), pool);
  for (size_t i = 0; i < x.size(); ++i) {
    const double g = x[i];
    const double expected = 0.5 * g * (1.0 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
    ASSERT_NEAR(out[i], expected, 3e-7 * std::fabs(g)) << g;
  }
}

TEST(Elementwise, ExtremesStayFinite) {
  const std::vector<float> x = {-INFINITY, -1e30F, -200.0F, 200.0F, 1e30F, -0.0F, 0.0F};
  const std::vector<float> ones(x.size(), 1.0F);
  std::vector<float> out(x.size());
  ThreadPool pool(1);
  const auto count = static_cast<int64_t>(x.size());
  sigmoid_gate(ones.data(), x.data(), count, out.data(), pool);
  EXPECT_EQ(out, (std::vector<float>{0, 0, 0, 1, 1, 0.5F, 0.5F}));
  softcap(x.data(), 50.0F, count, out.data(), pool);
  EXPECT_EQ(out[0], -50.0F);
  EXPECT_EQ(out[1], -50.0F);
  EXPECT_EQ(out[4], 50.0F);
  gated_activation(Activation::silu, x.data() + 1, ones.data(), count - 1, out.data(), pool);
  EXPECT_EQ(out[0], 0.0F);
  EXPECT_EQ(out[1], 0.0F);
  EXPECT_EQ(out[2], 200.0F);
  gated_activation(Activation::gelu_tanh, x.data() + 2, ones.data(), 2, out.data(), pool);
  EXPECT_EQ(out[0], 0.0F);
  EXPECT_EQ(out[1], 200.0F);
  const std::vector<float> nan = {NAN};
  softcap(nan.data(), 50.0F, 1, out.data(), pool);
  EXPECT_TRUE(std::isnan(out[0]));
}

TEST(Elementwise, NormsAgreeWithTheirDefinitions) {
  ThreadPool pool(2);
  for (const int64_t cols : {1, 5, 16, 63, 64, 65, 100, 640, 1024, 3000}) {
    const int64_t rows = 40;
    std::vector<float> x = random_values(rows * cols, static_cast<unsigned>(cols), 3.0F);
    for (float& value : x) value += 0.5F;
    const std::vector<float> weight = random_values(cols, 2);
    std::vector<float> rms(x.size());
    std::vector<float> layer(x.size());
    rms_norm(x.data(), weight.data(), 1e-6F, rows, cols, rms.data(), pool);
    layer_norm(x.data(), weight.data(), 1e-5F, rows, cols, layer.data(), pool);
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      double squares = 0;
      double variance = 0;
      for (int64_t c = 0; c < cols; ++c) {
        const double value = x[static_cast<size_t>(r * cols + c)];
        sum += value;
        squares += value * value;
      }
      const double n = static_cast<double>(cols);
      for (int64_t c = 0; c < cols; ++c) {
        const double distance = x[static_cast<size_t>(r * cols + c)] - sum / n;
        variance += distance * distance / n;
      }
      for (int64_t c = 0; c < cols; ++c) {
        const auto i = static_cast<size_t>(r * cols + c);
        const double w = weight[static_cast<size_t>(c)];
        const double normed = x[i] / std::sqrt(squares / n + double{1e-6F}) * w;
        ASSERT_NEAR(rms[i], normed, 3e-7 * std::fabs(normed)) << cols;
        // One column has no variance: what is left is rounding, magnified by 1 / sqrt(eps).
        ASSERT_NEAR(layer[i], (x[i] - sum / n) / std::sqrt(variance + double{1e-5F}) * w, 3e-6) << cols;
      }
    }
  }
}

TEST(Elementwise, ANormWorksInPlaceAndWithoutWeight) {
  std::vector<float> x = random_values(3 * 70, 4);
  const std::vector<float> ones(70, 1.0F);
  std::vector<float> out(x.size());
  ThreadPool pool(1);
  rms_norm(x.data(), nullptr, 1e-6F, 3, 70, out.data(), pool);
  std::vector<float> weighted(x.size());
  rms_norm(x.data(), ones.data(), 1e-6F, 3, 70, weighted.data(), pool);
  EXPECT_EQ(out, weighted);
  rms_norm(x.data(), nullptr, 1e-6F, 3, 70, x.data(), pool);
  EXPECT_EQ(out, x);
}

TEST(Elementwise, AddAndNormAtOnceGiveTheBitsOfOneAfterTheOther) {
  for (const int64_t cols : {1, 64, 640, 1003}) {
    const int64_t rows = 41;
    std::vector<float> x = random_values(rows * cols, 8, 3.0F);
    const std::vector<float> delta = random_values(rows * cols, 9);
    const std::vector<float> weight = random_values(cols, 10);
    std::vector<float> sum(x.size());
    std::vector<float> normed(x.size());
    ThreadPool pool(2);
    add(x.data(), delta.data(), rows * cols, sum.data(), pool);
    rms_norm(sum.data(), weight.data(), 1e-6F, rows, cols, normed.data(), pool);
    std::vector<float> out(x.size());
    std::vector<float> sum_at_once(x.size());
    add_rms_norm(x.data(), delta.data(), weight.data(), 1e-6F, rows, cols, sum_at_once.data(), out.data(), pool);
    EXPECT_TRUE(sum_at_once == sum) << cols;
    EXPECT_TRUE(out == normed) << cols;
    add_rms_norm(x.data(), delta.data(), weight.data(), 1e-6F, rows, cols, x.data(), out.data(), pool);  // in place
    EXPECT_TRUE(x == sum) << cols;
    EXPECT_TRUE(out == normed) << cols;
  }
}

TEST(Elementwise, RopeRotatesPairsInBothLayouts) {
  ThreadPool pool(2);
  for (const int head_dim : {2, 6, 64, 80, 128}) {
    for (const int rotary_dim : {2, head_dim / 2 / 2 * 2, head_dim}) {
      if (rotary_dim == 0) continue;
      for (const RopeLayout layout : {RopeLayout::halves, RopeLayout::interleaved}) {
        const int64_t rows = 5;
        const int heads = 3;
        const int half = rotary_dim / 2;
        const std::vector<float> x = random_values(rows * heads * head_dim, 1);
        const std::vector<float> angles = random_values(rows * half, 2, 3.0F);
        std::vector<float> cos(angles.size());
        std::vector<float> sin(angles.size());
        for (size_t i = 0; i < angles.size(); ++i) {
          cos[i] = std::cos(angles[i]);
          sin[i] = std::sin(angles[i]);
        }
        std::vector<float> got = x;
        rope(got.data(), cos.data(), sin.data(), rows, heads, head_dim, rotary_dim, layout, pool);
        for (int64_t r = 0; r < rows * heads; ++r) {
          for (int d = 0; d < head_dim; ++d) {
            const auto i = static_cast<size_t>(r * head_dim + d);
            if (d >= rotary_dim) {
              ASSERT_EQ(got[i], x[i]);
              continue;
            }
            const bool halves = layout == RopeLayout::halves;
            const int pair = halves ? d % half : d / 2;
            const bool second = halves ? d >= half : d % 2 == 1;
            const auto a = static_cast<size_t>(r * head_dim + (halves ? pair : 2 * pair));
            const auto b = static_cast<size_t>(r * head_dim + (halves ? pair + half : 2 * pair + 1));
            const double c = cos[static_cast<size_t>(r / heads * half + pair)];
            const double s = sin[static_cast<size_t>(r / heads * half + pair)];
            ASSERT_NEAR(got[i], second ? x[b] * c + x[a] * s : x[a] * c - x[b] * s, 1e-6);
          }
        }
      }
    }
  }
}

TEST(Elementwise, SameBitsOnEveryTargetAndNumberOfThreads) {
  const int64_t rows = 33;
  const int64_t cols = 1003;
  const std::vector<float> x = random_values(rows * cols, 5, 4.0F);
  const std::vector<float> y = random_values(rows * cols, 6);
  const auto result = [&](auto&& call) {
    return [&, call](ThreadPool& pool) {
      std::vector<float> out(x.size(), -1.0F);
      call(out.data(), pool);
      return out;
    };
  };
  expect_same_bits_everywhere(
      result([&](float* out, ThreadPool& pool) { rms_norm(x.data(), y.data(), 1e-6F, rows, cols, out, pool); }));
  expect_same_bits_everywhere(
      result([&](float* out, ThreadPool& pool) { layer_norm(x.data(), y.data(), 1e-6F, rows, cols, out, pool); }));
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh, Activation::gelu_erf}) {
    expect_same_bits_everywhere(result([&](float* out, ThreadPool& pool) {
      gated_activation(activation, x.data(), y.data(), rows * cols, out, pool);
    }));
  }
  expect_same_bits_everywhere(
      result([&](float* out, ThreadPool& pool) { sigmoid_gate(x.data(), y.data(), rows * cols, out, pool); }));
  expect_same_bits_everywhere(
      result([&](float* out, ThreadPool& pool) { add(x.data(), y.data(), rows * cols, out, pool); }));
  expect_same_bits_everywhere(
      result([&](float* out, ThreadPool& pool) { scale(x.data(), 0.37F, rows * cols, out, pool); }));
  expect_same_bits_everywhere(
      result([&](float* out, ThreadPool& pool) { softcap(x.data(), 3.0F, rows * cols, out, pool); }));
  for (const RopeLayout layout : {RopeLayout::halves, RopeLayout::interleaved}) {
    expect_same_bits_everywhere([&](ThreadPool& pool) {
      std::vector<float> out(x.begin(), x.begin() + 30 * 8 * 102);
      rope(out.data(), y.data(), y.data() + 7, 30, 8, 102, 86, layout, pool);
      return out;
    });
  }
}

TEST(Elementwise, AddAndScaleAreExact) {
  const std::vector<float> a = random_values(77, 1);
  const std::vector<float> b = random_values(77, 2);
  std::vector<float> sum(77);
  std::vector<float> scaled(77);
  ThreadPool pool(1);
  add(a.data(), b.data(), 77, sum.data(), pool);
  scale(a.data(), 1.7F, 77, scaled.data(), pool);
  for (size_t i = 0; i < 77; ++i) {
    ASSERT_EQ(sum[i], a[i] + b[i]);
    ASSERT_EQ(scaled[i], a[i] * 1.7F);
  }
}

}  // namespace
}  // namespace slipring
