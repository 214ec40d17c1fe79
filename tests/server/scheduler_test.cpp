// Continuous batching on the embedded model: every answer is that of a run alone, and nothing is left behind.
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <thread>

#include <slipring/drafts.h>
#include <slipring/error.h>
#include <slipring/scheduler.h>

namespace slipring {
namespace {

using std::chrono::milliseconds;

std::shared_ptr<const Model> tiny() {
  static const auto model = Model::load("");
  return model;
}

// A prompt of `length` tokens that differs from case to case.
std::vector<TokenId> prompt_of(int64_t length, int salt) {
  auto ids = encode_prompt(tiny()->tokenizer(), "In the beginning God created the heaven and the earth. ");
  std::vector<TokenId> prompt;
  for (int64_t i = 0; i < length; ++i) {
    prompt.push_back(i == length / 2 ? static_cast<TokenId>(100 + salt) : ids[static_cast<size_t>(i) % ids.size()]);
  }
  return prompt;
}

GenerationRequest request_of(int number) {
  // Short and long, past the window of 128 and not, greedy and sampled, with stops and penalties.
  static constexpr int64_t kLengths[] = {1, 5, 40, 127, 128, 129, 200, 300};
  GenerationRequest request;
  request.prompt = prompt_of(kLengths[number % 8], number);
  request.options.max_tokens = 8 + 7 * (number % 5);
  request.options.sampling.temperature = number % 3 == 0 ? 0.0 : 0.9;
  request.options.sampling.repeat_penalty = number % 4 == 1 ? 1.2 : 1.0;
  request.options.sampling.seed = static_cast<uint64_t>(number);
  if (number % 5 == 2) request.options.stop = {"the", ","};
  request.end_ids = tiny()->tokenizer().end_of_turn();
  return request;
}

struct Answer {
  std::vector<TokenId> tokens;
  std::string text;
  FinishReason finish = FinishReason::cancelled;
  bool operator==(const Answer&) const = default;
};

Answer alone(const GenerationRequest& request) {
  SessionOptions options;
  options.context = 512;
  options.threads = 2;
  Session session(tiny(), options);
  const GenerateResult result = generate(session, request.prompt, request.options);
  return {result.tokens, result.text, result.finish};
}

Answer collect(Generation& generation, int64_t leave_after = -1) {
  Answer answer;
  while (!generation.done()) {
    const auto event = generation.next(milliseconds(1000));
    if (!event) continue;
    answer.text += event->text;
    if (event->token) answer.tokens.push_back(*event->token);
    if (event->finish) answer.finish = *event->finish;
    if (leave_after >= 0 && static_cast<int64_t>(answer.tokens.size()) >= leave_after) generation.cancel();
  }
  return answer;
}

SchedulerOptions small(int64_t running, int64_t queued) {
  SchedulerOptions options;
  options.session.context = 512;
  options.session.threads = 2;
  options.session.chunk = 64;
  options.max_running = running;
  options.max_queued = queued;
  options.mixed_prefill = 33;
  return options;
}

// Sixteen clients, some of which leave half-way.
void expect_each_as_alone(const MakeDrafts& make_drafts) {
  static const std::map<int, Answer> expected = [] {
    std::map<int, Answer> answers;
    for (int number = 0; number < 24; ++number) answers[number] = alone(request_of(number));
    return answers;
  }();
  SchedulerOptions options = small(7, 64);
  options.make_drafts = make_drafts;
  Scheduler scheduler(tiny(), options);
  const char* rounds_asked = std::getenv("SLIPRING_SCHEDULER_ROUNDS");
  const int rounds = rounds_asked != nullptr ? std::atoi(rounds_asked) : 3;
  std::vector<std::thread> clients;
  for (int client = 0; client < 16; ++client) {
    clients.emplace_back([&, client] {
      for (int round = 0; round < rounds; ++round) {
        const int number = (client * 7 + round * 11) % 24;
        const auto generation = scheduler.submit(request_of(number));
        ASSERT_NE(generation, nullptr);
        const bool leaves = (client + round) % 4 == 3;
        const Answer answer = collect(*generation, leaves ? 3 : -1);
        if (answer.finish != FinishReason::cancelled) {
          EXPECT_EQ(answer.tokens, expected.at(number).tokens) << number;
          EXPECT_EQ(answer.text, expected.at(number).text) << number;
          EXPECT_EQ(answer.finish, expected.at(number).finish) << number;
        } else {
          EXPECT_TRUE(leaves);
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const SchedulerView view = scheduler.view();
  EXPECT_EQ(view.finished + view.cancelled, 16 * rounds);
  EXPECT_GT(view.cancelled, 0);
  EXPECT_EQ(view.failed + view.rejected, 0);
  for (int i = 0; i < 100 && scheduler.view().running > 0; ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(scheduler.view().running, 0);
  EXPECT_EQ(scheduler.view().queued, 0);
  EXPECT_EQ(scheduler.view().kv_bytes, 0);
  EXPECT_EQ(scheduler.view().last.drafting, static_cast<bool>(make_drafts));
}

TEST(Scheduler, SixteenClientsGetWhatEachWouldGetAlone) {
  expect_each_as_alone({});
}

TEST(Scheduler, AlsoWithGuessesOfTheModelsDrafter) {
  expect_each_as_alone(load_dflash_drafter(default_drafter_path(), tiny()));
}

// Guesses at random, ids outside the vocabulary among them.
class WrongDrafts : public Drafts {
 public:
  std::string_view name() const noexcept override { return "wrong"; }
  int64_t max_drafts() const noexcept override { return 5; }
  void observe(std::span<const TokenId> tokens, std::span<const std::span<const float>>) override {
    observed_ += static_cast<int64_t>(tokens.size());
  }
  std::vector<TokenId> propose(std::span<const TokenId> history, int64_t count) override {
    // What was observed is what the caches hold: all but the last token drawn.
    if (observed_ + 1 != static_cast<int64_t>(history.size())) ADD_FAILURE() << observed_ << " of " << history.size();
    std::vector<TokenId> guesses;
    for (int64_t i = 0; i < count; ++i) guesses.push_back(static_cast<TokenId>(observed_ * 7919 % 4500 + i));
    return guesses;
  }
  void clear() override { observed_ = 0; }
  bool truncate(int64_t) override { return false; }
  void restore(int64_t length, std::span<const std::byte>) override { observed_ = length; }

 private:
  int64_t observed_ = 0;
};

TEST(Scheduler, AlsoWithGuessesThatAreWrong) {
  expect_each_as_alone([](const std::shared_ptr<Worker>&) { return std::make_unique<WrongDrafts>(); });
}

TEST(Scheduler, AlsoWithLookedUpGuesses) {
  expect_each_as_alone([](const std::shared_ptr<Worker>&) { return make_ngram_drafts(); });
}

TEST(Scheduler, AFullQueueTakesNoMore) {
  Scheduler scheduler(tiny(), small(1, 2));
  std::vector<std::shared_ptr<Generation>> taken;
  int refused = 0;
  for (int i = 0; i < 8; ++i) {
    auto request = request_of(0);
    request.prompt = prompt_of(400, i);
    auto generation = scheduler.submit(std::move(request));
    if (generation == nullptr) {
      ++refused;
    } else {
      taken.push_back(std::move(generation));
    }
  }
  // One runs, two wait; one more may have slipped in while the first was being admitted.
  EXPECT_GE(refused, 4);
  EXPECT_EQ(scheduler.view().rejected, refused);
  for (const auto& generation : taken) generation->cancel();
  for (const auto& generation : taken) EXPECT_EQ(collect(*generation).finish, FinishReason::cancelled);
}

TEST(Scheduler, WhoHasItsAnswerFindsItsPlaceFree) {
  Scheduler scheduler(tiny(), small(1, 0));
  for (int i = 0; i < 300; ++i) {
    auto request = request_of(0);
    request.prompt = prompt_of(3, i);
    request.options.max_tokens = 1;
    const auto generation = scheduler.submit(std::move(request));
    ASSERT_NE(generation, nullptr) << "request " << i;
    collect(*generation);
  }
}

TEST(Scheduler, WhatCannotRunIsRefusedAtOnce) {
  Scheduler scheduler(tiny(), small(1, 1));
  const auto code = [&scheduler](std::vector<TokenId> prompt) {
    GenerationRequest request;
    request.prompt = std::move(prompt);
    try {
      scheduler.submit(std::move(request));
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::internal;
  };
  EXPECT_EQ(code({}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({-1}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({1 << 30}), ErrorCode::invalid_argument);
  EXPECT_EQ(code(prompt_of(512, 0)), ErrorCode::context_full);
  EXPECT_EQ(code(prompt_of(513, 0)), ErrorCode::context_full);
}

TEST(Scheduler, OptionsThatCannotRunAreRefusedAtOnce) {
  SchedulerOptions options = small(1, 1);
  options.make_drafts = [](const std::shared_ptr<Worker>&) { return std::make_unique<WrongDrafts>(); };
  Scheduler scheduler(tiny(), options);
  const auto refused = [&scheduler](const std::function<void(GenerateOptions&)>& change) {
    GenerationRequest request = request_of(0);
    change(request.options);
    try {
      const auto generation = scheduler.submit(std::move(request));
      generation->cancel();
      collect(*generation);
    } catch (const Error& error) {
      return error.code() == ErrorCode::invalid_argument;
    }
    return false;
  };
  EXPECT_TRUE(refused([](GenerateOptions& o) { o.stop = {"\xff"}; }));
  EXPECT_TRUE(refused([](GenerateOptions& o) { o.sampling.temperature = -1.0; }));
  for (const int64_t block : {-1, 1, 7, 100}) {
    EXPECT_TRUE(refused([block](GenerateOptions& o) { o.speculation.block = block; })) << block;
  }
  for (const int64_t block : {0, 2, 6}) {
    EXPECT_FALSE(refused([block](GenerateOptions& o) { o.speculation.block = block; })) << block;
  }
}

TEST(Scheduler, TheFirstDrawIsTheOneAskedFor) {
  Scheduler scheduler(tiny(), small(1, 1));
  GenerationRequest request = request_of(1);
  request.options.first_draw = 1000;
  ASSERT_GT(request.options.sampling.temperature, 0.0);
  const Answer expected = alone(request);
  EXPECT_NE(alone(request_of(1)).tokens, expected.tokens);
  EXPECT_EQ(collect(*scheduler.submit(std::move(request))), expected);
}

TEST(Scheduler, ABlockOfGuessesIsTheOneAskedFor) {
  std::vector<int64_t> asked;  // the engine thread's until the answer is there
  class Counting final : public WrongDrafts {
   public:
    explicit Counting(std::vector<int64_t>& asked) : asked_(asked) {}
    std::vector<TokenId> propose(std::span<const TokenId> history, int64_t count) override {
      asked_.push_back(count);
      return WrongDrafts::propose(history, count);
    }

   private:
    std::vector<int64_t>& asked_;
  };
  SchedulerOptions options = small(1, 1);
  options.make_drafts = [&](const std::shared_ptr<Worker>&) { return std::make_unique<Counting>(asked); };
  Scheduler scheduler(tiny(), options);
  GenerationRequest request = request_of(0);
  request.options.ignore_end = true;
  request.options.max_tokens = 20;
  request.options.speculation.block = 4;
  const Answer expected = alone(request);
  EXPECT_EQ(collect(*scheduler.submit(std::move(request))), expected);
  ASSERT_GT(asked.size(), 5U);
  // No more than the limit leaves room for, at the end.
  for (size_t i = 0; i + 3 < asked.size(); ++i) EXPECT_EQ(asked[i], 3) << i;
}

TEST(Scheduler, TheContextIsNeverOverrun) {
  Scheduler scheduler(tiny(), small(2, 4));
  for (const int64_t length : {510, 511}) {
    GenerationRequest request;
    request.prompt = prompt_of(length, 1);
    request.options.sampling.temperature = 0;
    const Answer answer = collect(*scheduler.submit(std::move(request)));
    EXPECT_EQ(static_cast<int64_t>(answer.tokens.size()), 512 - length);
    EXPECT_EQ(answer.finish, FinishReason::length);
  }
}

TEST(Scheduler, AStreamGoesOnWhileALongPromptIsRead) {
  Scheduler scheduler(tiny(), small(2, 4));
  GenerationRequest stream;
  stream.prompt = prompt_of(4, 1);
  stream.options.max_tokens = 60;
  stream.options.ignore_end = true;
  stream.options.sampling.temperature = 0;
  const auto running = scheduler.submit(std::move(stream));
  ASSERT_TRUE(running->next(milliseconds(5000)));
  GenerationRequest longer;
  longer.prompt = prompt_of(500, 2);
  longer.options.max_tokens = 1;
  const auto reading = scheduler.submit(std::move(longer));
  // The long prompt takes 500 / 33 steps, and each of them brings the stream a token.
  int64_t before = 0;
  while (!reading->next(milliseconds(0)) && running->next(milliseconds(1000))) ++before;
  EXPECT_GE(before, 10);
  running->cancel();
}

TEST(Scheduler, DrainLetsRunningRequestsEnd) {
  auto scheduler = std::make_unique<Scheduler>(tiny(), small(2, 4));
  const auto expected = alone(request_of(3));
  const auto generation = scheduler->submit(request_of(3));
  scheduler->drain(milliseconds(20000));
  EXPECT_EQ(scheduler->submit(request_of(3)), nullptr);
  EXPECT_EQ(collect(*generation), expected);
}

TEST(Scheduler, LogprobsAreTheModelsOwn) {
  Scheduler scheduler(tiny(), small(2, 4));
  auto request = request_of(3);
  request.logprobs = 5;
  request.options.sampling.top_k = 1;
  const auto generation = scheduler.submit(std::move(request));
  while (!generation->done()) {
    const auto event = generation->next(milliseconds(1000));
    if (!event || !event->token) continue;
    ASSERT_EQ(event->alternatives.size(), 5U);
    // top_k 1 draws the likeliest, and the alternatives are listed all the same.
    EXPECT_EQ(event->alternatives[0].id, *event->token);
    for (size_t i = 1; i < 5; ++i) EXPECT_LE(event->alternatives[i].logprob, event->alternatives[i - 1].logprob);
  }
}

}  // namespace
}  // namespace slipring
