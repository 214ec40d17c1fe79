// Property: every plan is legal, complete and the shortest that exists (against a brute-force search).

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <rapidcheck/gtest.h>

#include <slipring/error.h>
#include <slipring/ring_kv_cache.h>
#include <slipring/step_plan.h>

#include "support.h"

namespace slipring::test {
namespace {

bool legal(const PlannedStep& step, int64_t chunk, const std::vector<int64_t>& capacities) {
  return step.count >= 1 && step.count <= chunk &&
         std::ranges::all_of(capacities, [&](int64_t c) { return step.offset % c + step.count <= c; });
}

/// Fewest legal steps, by trying every cut.
int64_t fewest(int64_t offset, int64_t n_tokens, int64_t chunk, const std::vector<int64_t>& capacities) {
  std::vector<int64_t> best(static_cast<size_t>(n_tokens + 1), n_tokens + 1);
  best[0] = 0;
  for (int64_t done = 0; done < n_tokens; ++done) {
    for (int64_t count = 1; done + count <= n_tokens; ++count) {
      if (!legal({.offset = offset + done, .count = count}, chunk, capacities)) continue;
      auto& after = best[static_cast<size_t>(done + count)];
      after = std::min(after, best[static_cast<size_t>(done)] + 1);
    }
  }
  return best[static_cast<size_t>(n_tokens)];
}

RC_GTEST_PROP(StepPlan, IsLegalCompleteAndShortest, ()) {
  const int64_t offset = *rc::gen::inRange<int64_t>(0, 50);
  const int64_t n_tokens = *rc::gen::inRange<int64_t>(0, 60);
  const int64_t chunk = *rc::gen::inRange<int64_t>(1, 40);
  const auto capacities =
      *rc::gen::resize(4, rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, 25)));
  const auto steps = plan_steps(offset, n_tokens, chunk, capacities);
  int64_t next = offset;
  for (const PlannedStep& step : steps) {
    RC_ASSERT(step.offset == next);
    RC_ASSERT(legal(step, chunk, capacities));
    next += step.count;
  }
  RC_ASSERT(next == offset + n_tokens);
  RC_ASSERT(static_cast<int64_t>(steps.size()) == fewest(offset, n_tokens, chunk, capacities));
}

TEST(StepPlan, Examples) {
  const std::vector<int64_t> rings{8, 12, 8};
  EXPECT_EQ(plan_steps(0, 20, 100, rings), (std::vector<PlannedStep>{{0, 8}, {8, 4}, {12, 4}, {16, 4}}));
  EXPECT_EQ(plan_steps(5, 9, 4, std::vector<int64_t>{8}), (std::vector<PlannedStep>{{5, 3}, {8, 4}, {12, 2}}));
  EXPECT_EQ(plan_steps(3, 1000, 512, {}), (std::vector<PlannedStep>{{3, 512}, {515, 488}}));
  EXPECT_TRUE(plan_steps(7, 0, 1, rings).empty());
  EXPECT_EQ(longest_step(6, 100, rings), 2);
}

TEST(StepPlan, EveryStepOfAPlanCanBeWrittenInOneUpdate) {
  const Stream stream(70, 21);
  RingKVCache a(8, 8, kLayout);
  RingKVCache b(13, 5, kLayout);
  for (const PlannedStep& step : plan_steps(0, 70, 6, std::vector<int64_t>{8, 13})) {
    a.update(stream.block(step.offset, step.count));
    b.update(stream.block(step.offset, step.count));
  }
  EXPECT_EQ(a.offset(), 70);
  EXPECT_EQ(b.offset(), 70);
}

TEST(StepPlan, RefusesWhatIsOutOfRange) {
  const std::vector<int64_t> rings{8};
  EXPECT_THROW(plan_steps(-1, 5, 4, rings), Error);
  EXPECT_THROW(plan_steps(0, -5, 4, rings), Error);
  EXPECT_THROW(plan_steps(0, 5, 0, rings), Error);
  EXPECT_THROW(plan_steps(0, 0, 4, std::vector<int64_t>{8, 0}), Error);
}

}  // namespace
}  // namespace slipring::test
