// Samplers, with the cases that broke other engines (docs/ names them): non-finite rows, and filters that leave
// nothing.
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <map>

#include <slipring/error.h>
#include <slipring/sampling.h>

namespace slipring {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingOptions greedy() {
  SamplingOptions options;
  options.temperature = 0;
  return options;
}

ErrorCode code_of(const std::vector<float>& row, const SamplingOptions& options) {
  try {
    Sampler(options, static_cast<int64_t>(row.size())).pick(row, {});
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::internal;
}

TEST(Sampler, NonFiniteRowsAreErrorsWhereverTheyAre) {
  for (const size_t at : {size_t{0}, size_t{2}, size_t{4}}) {
    for (const float bad : {std::nanf(""), kInfinity}) {
      std::vector<float> row{1, 2, 3, 4, 5};
      row[at] = bad;
      EXPECT_EQ(code_of(row, greedy()), ErrorCode::non_finite) << at;
      EXPECT_EQ(code_of(row, {}), ErrorCode::non_finite) << at;
    }
  }
  EXPECT_EQ(code_of(std::vector<float>(5, -kInfinity), {}), ErrorCode::non_finite);
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  EXPECT_EQ(Sampler(greedy(), 4).pick(std::vector<float>{1, 7, 7, 7}, {}), 1);
  SamplingOptions tiny;
  tiny.temperature = 1e-9;
  EXPECT_EQ(Sampler(tiny, 4).pick(std::vector<float>{1, 7, 7, 7}, {}), 1);
}

TEST(Sampler, FiltersAlwaysKeepOneToken) {
  // One token of 2 %, 98 of 1 %: top-k 1 with top-p 0.5 leaves the likeliest.
  std::vector<float> row(99, std::log(0.01F));
  row[42] = std::log(0.02F);
  for (const double top_p : {0.0, 1e-9, 0.5, 1.0}) {
    SamplingOptions options;
    options.top_k = 1;
    options.top_p = top_p;
    EXPECT_EQ(Sampler(options, 99).pick(row, {}), 42) << top_p;
  }
  SamplingOptions only_p;
  only_p.top_k = 0;
  only_p.top_p = 0.0;
  EXPECT_EQ(Sampler(only_p, 99).pick(row, {}), 42);
  SamplingOptions min_p;
  min_p.top_k = -1;
  min_p.top_p = 1;
  min_p.min_p = 1.0;
  EXPECT_EQ(Sampler(min_p, 99).pick(row, {}), 42);
  SamplingOptions hot;
  hot.temperature = 1e30;
  hot.top_k = 1000;
  EXPECT_NO_THROW(Sampler(hot, 99).pick(row, {}));
}

TEST(Sampler, DrawsFollowTheDistributionAndTheSeed) {
  const std::vector<float> row{std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  SamplingOptions options;
  options.temperature = 1;
  options.top_p = 1;
  options.top_k = 0;
  options.seed = 7;
  Sampler sampler(options, 3);
  std::map<TokenId, int> counts;
  for (uint64_t draw = 0; draw < 20000; ++draw) ++counts[sampler.pick(row, {}, draw)];
  // Five standard deviations of a binomial with n = 20000.
  EXPECT_NEAR(counts[0], 10000, 354);
  EXPECT_NEAR(counts[1], 6000, 325);
  EXPECT_NEAR(counts[2], 4000, 283);
  const TokenId first = sampler.pick(row, {}, 0);
  EXPECT_EQ(sampler.pick(row, {}, 0), first);
}

TEST(Sampler, TemperatureDoesNotChangeWhatSurvivesTheFilters) {
  const std::vector<float> row{std::log(0.6F), std::log(0.3F), std::log(0.1F)};
  SamplingOptions options;
  options.temperature = 100;
  options.top_p = 0.8;
  options.top_k = 0;
  Sampler sampler(options, 3);
  for (uint64_t draw = 0; draw < 500; ++draw) EXPECT_NE(sampler.pick(row, {}, draw), 2);
}

TEST(Sampler, PenaltiesAndBias) {
  SamplingOptions options = greedy();
  options.repeat_penalty = 2.0;
  const std::vector<float> row{4, 3, -1};
  const std::vector<TokenId> history{0, 0};
  EXPECT_EQ(Sampler(options, 3).pick(row, history), 1);
  options = greedy();
  options.frequency_penalty = 0.6;
  EXPECT_EQ(Sampler(options, 3).pick(row, history), 1);
  options = greedy();
  options.logit_bias = {{0, -kInfinity}, {1, -kInfinity}};
  EXPECT_EQ(Sampler(options, 3).pick(row, {}), 2);
  options.logit_bias.push_back({2, -kInfinity});
  EXPECT_THROW(Sampler(options, 3).pick(row, {}), Error);
}

TEST(Sampler, ImpossibleSettingsAreNamedAllAtOnce) {
  SamplingOptions options;
  options.temperature = -1;
  options.top_p = 1.5;
  options.min_p = std::nan("");
  options.repeat_penalty = 0;
  options.logit_bias = {{9, 1.0F}};
  try {
    const Sampler sampler(options, 5);
    FAIL();
  } catch (const Error& error) {
    const std::string line = error.what();
    for (const char* name : {"temperature", "top-p", "min-p", "repeat-penalty", "logit bias token"}) {
      EXPECT_NE(line.find(name), std::string::npos) << line;
    }
  }
}

TEST(Logprobs, AreSortedAndSumToOne) {
  const std::vector<float> row{0, 2, 1, 2};
  const auto top = top_logprobs(row, 10);
  ASSERT_EQ(top.size(), 4U);
  EXPECT_EQ(top[0].id, 1);
  EXPECT_EQ(top[1].id, 3);
  double sum = 0;
  for (const auto& entry : top) {
    sum += std::exp(entry.logprob);
    EXPECT_FLOAT_EQ(entry.logprob, logprob(row, entry.id));
  }
  EXPECT_NEAR(sum, 1, 1e-6);
}

TEST(UniformDraw, IsEvenAndKeepsItsDefinition) {
  double sum = 0;
  for (uint64_t i = 0; i < 10000; ++i) sum += uniform_draw(1, i);
  EXPECT_NEAR(sum / 10000, 0.5, 0.0145);  // five standard deviations
  EXPECT_NE(uniform_draw(1, 0), uniform_draw(2, 0));
}

}  // namespace
}  // namespace slipring
