// Speculation changes the speed only: whatever is guessed, the tokens, the text and every byte in the caches are those
// of plain decoding. Window 16, so every run wraps its rings many times.
#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>

#include <slipring/error.h>

#include "test_drafts.h"

namespace slipring::testing {
namespace {

constexpr int64_t kWindow = 16;

const std::filesystem::path& data() {
  static const std::filesystem::path path = std::filesystem::path(SLIPRING_SOURCE_DIR) / "tests/data";
  return path;
}

const std::shared_ptr<const Model>& target() {
  static const auto model = Model::load(data() / "muse-glimmer");
  return model;
}

SessionOptions session_options() {
  return {.kv_dtype = DType::F16, .context = 0, .chunk = 512, .threads = 1};
}

std::vector<TokenId> prompt_of(int64_t length) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<TokenId>(3 + (i * 37 + i * i * 5) % 300));
  return tokens;
}

GenerateOptions options_for(bool greedy, int64_t max_tokens, int64_t block) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.ignore_end = true;
  options.speculation.block = block;
  if (greedy) {
    options.sampling.temperature = 0.0;
  } else {
    options.sampling = {.temperature = 1.1,
                        .top_k = 60,
                        .top_p = 0.97,
                        .min_p = 0.001,
                        .repeat_penalty = 1.2,
                        .presence_penalty = 0.3,
                        .frequency_penalty = 0.1,
                        .penalty_window = 24,
                        .logit_bias = {{5, 0.5F}},
                        .seed = 77};
  }
  return options;
}

/// What plain decoding gives, kept for every comparison with it.
struct Plain {
  std::vector<TokenId> prompt;
  GenerateOptions options;
  GenerateResult result;
  std::vector<TokenId> truth;  // prompt and output
  std::unique_ptr<PlainLog> log;

  Plain(std::vector<TokenId> prompt_tokens, const GenerateOptions& given)
      : prompt(std::move(prompt_tokens)), options(given) {
    Session session(target(), session_options());
    result = generate(session, prompt, options);
    truth = prompt;
    truth.insert(truth.end(), result.tokens.begin(), result.tokens.end());
    log = std::make_unique<PlainLog>(target(), truth, session_options().kv_dtype);
  }
};

/// The true continuation for `right` guesses, then wrong ones.
std::vector<TokenId> partly_true(const Plain& plain, std::span<const TokenId> history, int64_t count, int64_t right) {
  std::vector<TokenId> guesses;
  for (int64_t i = 0; i < count; ++i) {
    const size_t at = history.size() + static_cast<size_t>(i);
    const TokenId token = at < plain.truth.size() ? plain.truth[at] : 7;
    guesses.push_back(i < right ? token : (token + 1) % static_cast<TokenId>(target()->spec().vocab_size));
  }
  return guesses;
}

using MakeDrafts = std::function<std::unique_ptr<Drafts>(const Session& session)>;

/// Runs with those drafts and compares with plain decoding: tokens, text, end, and the caches after every step.
GenerateResult expect_same(const Plain& plain, int64_t block, const MakeDrafts& make, const std::string& name) {
  Session session(target(), session_options());
  std::string difference;
  int64_t looked = 0;
  session.attach_drafts(std::make_unique<WatchedDrafts>(make(session), [&] {
    ++looked;
    if (difference.empty()) difference = plain.log->difference(session);
  }));
  GenerateOptions options = plain.options;
  options.speculation.block = block;
  const GenerateResult result = generate(session, plain.prompt, options);
  EXPECT_EQ(result.tokens, plain.result.tokens) << name << " block " << block;
  EXPECT_EQ(result.text, plain.result.text) << name << " block " << block;
  EXPECT_EQ(result.finish, plain.result.finish) << name << " block " << block;
  EXPECT_EQ(difference, "") << name << " block " << block;
  EXPECT_GT(looked, result.speculation.steps);  // every step of both phases
  return result;
}

GenerateResult expect_same(const Plain& plain, int64_t block, const Guess& guess, const std::string& name) {
  return expect_same(
      plain, block, [&](const Session&) { return std::make_unique<ScriptedDrafts>(15, guess); }, name);
}

std::unique_ptr<Drafts> drafter(const Session& session) {
  return load_dflash_drafts(data() / "muse-glimmer-assistant", target(), session.worker());
}

std::unique_ptr<Drafts> ngrams(const Session&) {
  return make_ngram_drafts();
}

struct Source {
  std::string name;
  std::function<Guess(const Plain&)> make;
};

std::vector<Source> sources() {
  const auto truthful = [](int64_t right) {
    return [right](const Plain& plain) -> Guess {
      return [&plain, right](std::span<const TokenId> history, int64_t count) {
        return partly_true(plain, history, count, right);
      };
    };
  };
  const auto always = [](TokenId id) {
    return [id](const Plain&) -> Guess {
      return [id](std::span<const TokenId>, int64_t count) {
        return std::vector<TokenId>(static_cast<size_t>(count), id);
      };
    };
  };
  std::vector<Source> all{{"always wrong", truthful(0)}, {"the truth", truthful(1000)}};
  all.push_back({"0 to 4 right in rotation", [](const Plain& plain) -> Guess {
                   return [&plain, round = int64_t{0}](std::span<const TokenId> history, int64_t count) mutable {
                     return partly_true(plain, history, count, round++ % 5);
                   };
                 }});
  all.push_back({"the vocabulary's size", always(static_cast<TokenId>(target()->spec().vocab_size))});
  all.push_back({"-1", always(-1)});
  all.push_back({"2^31-1", always(0x7fffffff)});
  all.push_back({"right, then an id outside the vocabulary", [](const Plain& plain) -> Guess {
                   return [&plain](std::span<const TokenId> history, int64_t count) {
                     auto guesses = partly_true(plain, history, count, count);
                     guesses.back() = 0x7fffffff;
                     return guesses;
                   };
                 }});
  all.push_back({"more than asked", [](const Plain& plain) -> Guess {
                   return [&plain](std::span<const TokenId> history, int64_t count) {
                     return partly_true(plain, history, count + 40, 1000);
                   };
                 }});
  all.push_back({"none at all", [](const Plain&) -> Guess {
                   return [](std::span<const TokenId>, int64_t) { return std::vector<TokenId>{}; };
                 }});
  return all;
}

TEST(Lossless, EverySourceOfGuessesGreedyAndSampledFarPastTheWrap) {
  for (const bool greedy : {true, false}) {
    const Plain plain(prompt_of(21), options_for(greedy, kWindow + 300, 0));
    ASSERT_EQ(plain.result.tokens.size(), static_cast<size_t>(kWindow + 300));
    for (const Source& source : sources()) {
      for (const int64_t block : {2, 7, 16}) expect_same(plain, block, source.make(plain), source.name);
    }
    expect_same(plain, 0, sources()[2].make(plain), "automatic block");
  }
}

TEST(Lossless, EveryBlockSizeAtEveryOffsetOfTheRing) {
  for (int64_t offset = 0; offset < kWindow; ++offset) {
    const Plain plain(prompt_of(kWindow + offset), options_for(offset % 2 == 0, 40, 0));
    for (int64_t block = 2; block <= 16; ++block) {
      expect_same(plain, block, sources()[2].make(plain), "offset " + std::to_string(offset));
    }
  }
}

void expect_same_from_every_offset(bool greedy) {
  int64_t proposed_by_ngrams = 0;
  for (int64_t offset = 0; offset < kWindow; ++offset) {
    const Plain plain(prompt_of(1 + offset), options_for(greedy, kWindow + 300, 0));
    ASSERT_EQ(plain.result.tokens.size(), static_cast<size_t>(kWindow + 300));
    const std::string name = " from offset " + std::to_string(offset);
    // Sixteen offsets: blocks of every size, 2 to 16, or up to the drafter's own 8. Each kind meets every offset, the
    // drafter greedily and sampled, the others in one of the two.
    const auto block = [&](int64_t sizes) { return 2 + (offset + (greedy ? 0 : 5)) % sizes; };
    EXPECT_GT(expect_same(plain, block(7), drafter, "the drafter" + name).speculation.proposed, 0);
    if ((offset % 2 == 0) == greedy) {
      expect_same(plain, block(15), sources()[0].make(plain), "always wrong" + name);
      proposed_by_ngrams += expect_same(plain, block(15), ngrams, "n-gram" + name).speculation.proposed;
    } else {
      expect_same(plain, block(15), sources()[1].make(plain), "the truth" + name);
      expect_same(plain, block(15), sources()[2].make(plain), "0 to 4 right" + name);
    }
  }
  EXPECT_GT(proposed_by_ngrams, 0);
}

TEST(Lossless, EveryOffsetFarPastTheWrapWithEveryKindOfDraftsGreedy) {
  expect_same_from_every_offset(true);
}

TEST(Lossless, EveryOffsetFarPastTheWrapWithEveryKindOfDraftsSampled) {
  expect_same_from_every_offset(false);
}

TEST(Lossless, TheDrafterAndTheNgramDraftsWithLongPromptsAndAutomaticBlocks) {
  for (const bool greedy : {true, false}) {
    const Plain plain(prompt_of(4 * kWindow + 1), options_for(greedy, 120, 0));
    EXPECT_GT(expect_same(plain, 0, drafter, "the drafter").speculation.proposed, 0);
    EXPECT_GT(expect_same(plain, 8, drafter, "the drafter").speculation.proposed, 0);
    expect_same(plain, 0, ngrams, "n-gram");
    expect_same(plain, 16, ngrams, "n-gram");
  }
}

/// The sizes of blocks that cannot be: one token is no block, and no source is asked for more than it can propose.
TEST(Lossless, ABlockOfOneOrLongerThanTheDraftersIsRefused) {
  for (const auto& [make, block] :
       {std::pair<MakeDrafts, int64_t>{drafter, 1}, {drafter, 9}, {drafter, -1}, {ngrams, 1}, {ngrams, 18}}) {
    Session session(target(), session_options());
    session.attach_drafts(make(session));
    GenerateOptions options = options_for(true, 4, block);
    try {
      generate(session, prompt_of(5), options);
      ADD_FAILURE() << "block " << block;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(std::to_string(block)), std::string::npos) << error.what();
    }
    EXPECT_EQ(session.length(), 0);
  }
}

TEST(Lossless, NgramDraftsGuessARepetition) {
  // The model itself does not repeat; a text that does must at least be guessed at.
  std::vector<TokenId> prompt;
  for (int i = 0; i < 40; ++i) prompt.push_back(static_cast<TokenId>(10 + i % 5));
  const auto drafts = make_ngram_drafts();
  EXPECT_EQ(drafts->propose(prompt, 7), (std::vector<TokenId>{10, 11, 12, 13, 14, 10, 11}));
}

/// Two characters of a text, the first of them at byte `at` or the next whole one.
std::string two_characters(const std::string& text, size_t at) {
  const auto next = [&text](size_t from) {
    do ++from;
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0U) == 0x80U);
    return from;
  };
  const size_t first = next(at);
  return text.substr(first, next(next(first)) - first);
}

TEST(Lossless, StopStringsAndEndsInsideABlock) {
  for (const bool greedy : {true, false}) {
    const Plain whole(prompt_of(18), options_for(greedy, 80, 0));
    // Ends at many places, so that some fall inside a block.
    for (size_t at = 20; at + 20 < whole.result.text.size() && at < 80; at += 7) {
      GenerateOptions options = whole.options;
      options.stop = {two_characters(whole.result.text, at)};
      const Plain plain(whole.prompt, options);
      for (const int64_t block : {4, 16}) expect_same(plain, block, sources()[1].make(plain), "stop string");
    }
    for (const int64_t limit : {0, 1, 2, 3, 17}) {
      GenerateOptions options = whole.options;
      options.max_tokens = limit;
      const Plain plain(whole.prompt, options);
      expect_same(plain, 8, sources()[1].make(plain), "limit " + std::to_string(limit));
    }
  }
}

TEST(Lossless, ReplayedTruthIsAcceptedWhateverTheContext) {
  for (const int64_t context : {kWindow / 2, kWindow, 2 * kWindow, 8 * kWindow}) {
    for (const bool greedy : {true, false}) {
      const Plain plain(prompt_of(context), options_for(greedy, 64, 0));
      for (const int64_t block : {2, 7, 16}) {
        const GenerateResult result = expect_same(plain, block, sources()[1].make(plain), "replay");
        EXPECT_GT(result.speculation.proposed, 0);
        EXPECT_EQ(result.speculation.accepted, result.speculation.proposed) << "context " << context;
      }
      const GenerateResult wrong = expect_same(plain, 7, sources()[0].make(plain), "always wrong");
      EXPECT_EQ(wrong.speculation.accepted, 0);
    }
  }
}

TEST(Lossless, ASpeculatedTextEndsAtTheContextsEnd) {
  SessionOptions small = session_options();
  small.context = 50;
  GenerateOptions options = options_for(true, -1, 0);
  Session plain_session(target(), small);
  const GenerateResult plain = generate(plain_session, prompt_of(20), options);
  for (const int64_t block : {2, 7, 16}) {
    Session session(target(), small);
    std::vector<TokenId> truth = prompt_of(20);
    truth.insert(truth.end(), plain.tokens.begin(), plain.tokens.end());
    session.attach_drafts(std::make_unique<ScriptedDrafts>(15, [&](std::span<const TokenId> history, int64_t count) {
      std::vector<TokenId> guesses;
      for (size_t i = history.size(); i < truth.size() && static_cast<int64_t>(guesses.size()) < count; ++i) {
        guesses.push_back(truth[i]);
      }
      return guesses;
    }));
    options.speculation.block = block;
    EXPECT_EQ(generate(session, prompt_of(20), options).tokens, plain.tokens) << block;
    EXPECT_LE(session.length(), 50);
  }
}

}  // namespace
}  // namespace slipring::testing
