// Prompts that begin as an earlier text did: what is computed of them, and that no answer changes.
#include <gtest/gtest.h>
#include <thread>

#include <slipring/drafts.h>
#include <slipring/scheduler.h>

namespace slipring {
namespace {

using std::chrono::milliseconds;

// Window 128, context 1024.
std::shared_ptr<const Model> tiny() {
  static const auto model = Model::load("");
  return model;
}

std::vector<TokenId> prompt_of(int64_t length, int salt = 0) {
  std::vector<TokenId> prompt(static_cast<size_t>(length));
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>((i * i * 31 + i + 300) % 4000 + 50);
  prompt[0] += salt;
  return prompt;
}

std::vector<TokenId> changed_at(std::vector<TokenId> prompt, int64_t place) {
  prompt.at(static_cast<size_t>(place)) += 1;
  return prompt;
}

struct Served {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  int64_t reused = 0;
  int64_t computed = 0;  // tokens of the prompt
};

GenerationRequest request_of(std::vector<TokenId> prompt, int64_t max_tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.options.max_tokens = max_tokens;
  request.options.ignore_end = true;
  request.options.sampling.temperature = 0.7;
  request.options.sampling.seed = 5;
  request.logprobs = 0;
  return request;
}

void read_to_end(Generation& generation, Served& into) {
  while (!generation.done()) {
    const auto event = generation.next(milliseconds(1000));
    if (!event || !event->token) continue;
    into.tokens.push_back(*event->token);
    into.logprobs.push_back(event->logprob.logprob);
  }
  into.reused = generation.reused_tokens();
}

Served serve(Scheduler& scheduler, const std::vector<TokenId>& prompt, int64_t max_tokens = 1) {
  const int64_t before = scheduler.view().prompt_tokens;
  Served served;
  read_to_end(*scheduler.submit(request_of(prompt, max_tokens)), served);
  served.computed = scheduler.view().prompt_tokens - before;
  return served;
}

SchedulerOptions options_of(int64_t budget, int64_t every, MakeDrafts make_drafts = {}) {
  SchedulerOptions options;
  options.session.context = 1024;
  options.session.threads = 2;
  options.session.chunk = 48;
  options.max_running = 4;
  options.prefixes = {.budget_bytes = budget, .every = every};
  options.make_drafts = std::move(make_drafts);
  return options;
}
constexpr int64_t kPlenty = int64_t{256} << 20;

// What a cold run gives; one scheduler for all, which keeps nothing.
Served cold(const std::vector<TokenId>& prompt, int64_t max_tokens = 1) {
  static Scheduler scheduler(tiny(), options_of(0, 0));
  Served served = serve(scheduler, prompt, max_tokens);
  EXPECT_EQ(served.reused, 0);
  EXPECT_EQ(served.computed, static_cast<int64_t>(prompt.size()));
  return served;
}

// Serves it warm: the same bits as cold, and the two counts add up.
int64_t computed_warm(Scheduler& scheduler, const std::vector<TokenId>& prompt, int64_t max_tokens = 12) {
  const Served expected = cold(prompt, max_tokens);
  const Served served = serve(scheduler, prompt, max_tokens);
  EXPECT_EQ(served.tokens, expected.tokens);
  EXPECT_EQ(served.logprobs, expected.logprobs);
  EXPECT_EQ(served.reused + served.computed, static_cast<int64_t>(prompt.size()));
  return served.computed;
}

class Prefixes : public testing::TestWithParam<const char*> {
 protected:
  static MakeDrafts drafts() {
    const std::string kind = GetParam();
    if (kind == "none") return {};
    if (kind == "ngram") return [](const std::shared_ptr<Worker>&) { return make_ngram_drafts(); };
    return load_dflash_drafter(default_drafter_path(), tiny(), 1);
  }
};

// A prompt that has wrapped the rings, sent again, appended to, edited near its end and far from it.
TEST_P(Prefixes, OnlyWhatIsNewIsComputed) {
  Scheduler scheduler(tiny(), options_of(kPlenty, 32, drafts()));
  const auto prompt = prompt_of(300);
  EXPECT_EQ(computed_warm(scheduler, prompt, 1), 300);
  EXPECT_EQ(computed_warm(scheduler, prompt), 1);
  EXPECT_EQ(computed_warm(scheduler, prompt), 1);
  auto longer = prompt;
  longer.insert(longer.end(), {101, 102, 103, 104, 105});
  EXPECT_EQ(computed_warm(scheduler, longer), 5);
  // From the snapshots at 288 and at 224.
  EXPECT_EQ(computed_warm(scheduler, changed_at(prompt, 297)), 12);
  EXPECT_EQ(computed_warm(scheduler, changed_at(prompt, 240)), 76);
  EXPECT_EQ(computed_warm(scheduler, changed_at(prompt, 0)), 300);
}

// The same before the rings have wrapped: any shared beginning can be gone on from.
TEST_P(Prefixes, ShortPrompts) {
  Scheduler scheduler(tiny(), options_of(kPlenty, 0, drafts()));
  const auto prompt = prompt_of(100);
  EXPECT_EQ(computed_warm(scheduler, prompt, 1), 100);
  EXPECT_EQ(computed_warm(scheduler, prompt), 1);
  auto longer = prompt;
  longer.insert(longer.end(), {101, 102, 103, 104, 105});
  EXPECT_EQ(computed_warm(scheduler, longer), 5);
  EXPECT_EQ(computed_warm(scheduler, changed_at(prompt, 97)), 3);
  EXPECT_EQ(computed_warm(scheduler, changed_at(prompt, 40)), 60);
}

// A conversation: each turn's prompt is the last one's, its reply, and a few tokens more.
TEST_P(Prefixes, TurnsGoOnFromTheReply) {
  Scheduler scheduler(tiny(), options_of(kPlenty, 0, drafts()));
  auto text = prompt_of(90);
  computed_warm(scheduler, text, 1);
  for (int turn = 0; turn < 4; ++turn) {
    const Served reply = serve(scheduler, text, 60);
    text.insert(text.end(), reply.tokens.begin(), reply.tokens.end());
    text.insert(text.end(), {201, 202, 203});
    // The reply's last token was drawn, not computed.
    EXPECT_EQ(computed_warm(scheduler, text, 1), 4) << turn;
  }
}

INSTANTIATE_TEST_SUITE_P(Drafts, Prefixes, testing::Values("none", "ngram", "dflash"));

TEST(PrefixScheduling, EqualPromptsAreComputedOnce) {
  Scheduler scheduler(tiny(), options_of(kPlenty, 0));
  const auto prompt = prompt_of(400);
  const Served expected = cold(prompt, 9);
  std::vector<std::shared_ptr<Generation>> all;
  for (int i = 0; i < 4; ++i) all.push_back(scheduler.submit(request_of(prompt, 9)));
  for (const auto& generation : all) {
    Served served;
    read_to_end(*generation, served);
    EXPECT_EQ(served.tokens, expected.tokens);
    EXPECT_EQ(served.logprobs, expected.logprobs);
  }
  EXPECT_EQ(scheduler.view().prompt_tokens, 400 + 3);
  EXPECT_EQ(scheduler.view().prefixes.hits, 3);
}

TEST(PrefixScheduling, WhoWaitsForAnotherDoesNotDependOnItsEnd) {
  Scheduler scheduler(tiny(), options_of(kPlenty, 0));
  const auto prompt = prompt_of(900);
  const auto leader = scheduler.submit(request_of(prompt, 5));
  const auto follower = scheduler.submit(request_of(prompt, 5));
  std::this_thread::sleep_for(milliseconds(5));
  leader->cancel();
  Served served;
  read_to_end(*follower, served);
  EXPECT_EQ(served.tokens, cold(prompt, 5).tokens);
}

TEST(PrefixScheduling, TheBudgetHolds) {
  constexpr int64_t kBudget = 3 << 20;
  Scheduler scheduler(tiny(), options_of(kBudget, 0));
  for (int i = 0; i < 12; ++i) {
    serve(scheduler, prompt_of(200 + i, i), 3);
    EXPECT_LE(scheduler.view().prefixes.bytes, kBudget);
  }
  EXPECT_GT(scheduler.view().prefixes.evicted, 0);
  EXPECT_GT(scheduler.view().prefixes.snapshots, 0);
  // A reply is read to its end a little before its caches are freed.
  for (int i = 0; i < 500 && scheduler.view().running > 0; ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(scheduler.view().kv_bytes, 0);
  // The last one is still there.
  EXPECT_EQ(computed_warm(scheduler, prompt_of(211, 11)), 1);
}

}  // namespace
}  // namespace slipring
