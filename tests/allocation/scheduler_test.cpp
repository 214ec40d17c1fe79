// Want of memory on the scheduler's thread: requests end with a clear error, or with the text that they would have had
// anyway, and the thread lives on.
#include <map>

#include <slipring/scheduler.h>

#include "support.h"

namespace slipring::testing {
namespace {

struct Answer {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::cancelled;
  bool refused = false;
  bool operator==(const Answer&) const = default;
};

GenerationRequest request(int number) {
  GenerationRequest result;
  const auto prompt = part(number * 3, 5 + 30 * number);
  result.prompt.assign(prompt.begin(), prompt.end());
  result.options.max_tokens = 4 + number;
  result.options.ignore_end = true;
  result.options.sampling.temperature = 0.0;
  if (number == 1) result.options.stop = {"never to be seen"};
  if (number == 2) result.logprobs = 3;
  return result;
}

Answer collect(Generation& generation) {
  Answer answer;
  while (!generation.done()) {
    try {
      const auto event = generation.next(std::chrono::milliseconds(1000));
      if (!event) continue;
      if (event->token) answer.tokens.push_back(*event->token);
      if (event->finish) answer.finish = *event->finish;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
      answer.refused = true;
    }
  }
  return answer;
}

void expect_the_thread_lives(const MakeDrafts& make_drafts) {
  constexpr int kRequests = 3;
  SchedulerOptions options;
  options.session.context = 256;
  options.session.threads = 1;
  options.session.chunk = 32;
  options.max_running = 2;
  options.make_drafts = make_drafts;
  options.prefixes.budget_bytes = 1 << 20;
  Scheduler scheduler(small_model(), options);
  const auto ask = [&] {
    std::vector<std::shared_ptr<Generation>> asked;
    for (int number = 0; number < kRequests; ++number) asked.push_back(scheduler.submit(request(number)));
    std::vector<Answer> answers;
    for (const auto& generation : asked) answers.push_back(collect(*generation));
    return answers;
  };
  const std::vector<Answer> expected = ask();
  for (const Answer& answer : expected) ASSERT_FALSE(answer.refused);
  int64_t refusals = 0;
  for (int64_t nth = 1;; nth += 1 + nth / 24) {
    std::vector<Answer> answers;
    bool failed = false;
    {
      const FailingAllocation failing(nth, FailingAllocation::Of::other_threads);
      answers = ask();
      failed = failing.failed();
    }
    for (size_t i = 0; i < answers.size(); ++i) {
      if (answers[i].refused) {
        ++refusals;
      } else {
        ASSERT_EQ(answers[i], expected[i]) << "request " << i << ", allocation " << nth;
      }
    }
    ASSERT_EQ(ask(), expected) << "after allocation " << nth;
    if (!failed) break;
  }
  EXPECT_GT(refusals, 10);
  const SchedulerView view = scheduler.view();
  EXPECT_EQ(view.failed, refusals);
  for (int i = 0; i < 200 && scheduler.view().running > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(scheduler.view().running, 0);
  EXPECT_EQ(scheduler.view().kv_bytes, 0);
}

TEST(SchedulerWithoutMemory, LivesOn) {
  expect_the_thread_lives({});
}

TEST(SchedulerWithoutMemory, LivesOnWithADrafter) {
  expect_the_thread_lives(load_dflash_drafter(
      std::filesystem::path(SLIPRING_SOURCE_DIR) / "tests/data/muse-glimmer-assistant", small_model(), 1));
}

}  // namespace
}  // namespace slipring::testing
