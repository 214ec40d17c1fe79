// Want of memory with a drafter: it stays in step with the session, or the step is not taken.
#include <algorithm>

#include <slipring/generate.h>

#include "engine/step.h"
#include "support.h"

namespace slipring::testing {
namespace {

const MakeDrafts& drafter() {
  static const MakeDrafts make = load_dflash_drafter(
      std::filesystem::path(SLIPRING_SOURCE_DIR) / "tests/data/muse-glimmer-assistant", small_model(), 1);
  return make;
}

// The drafter takes in what it has observed in pieces of 64 positions: 60 wait here.
const Start& before_a_piece() {
  static const Start start(316, drafter());
  return start;
}

void keep(std::vector<float>& rows, std::span<const float> row) {
  rows.insert(rows.end(), row.begin(), row.end());
}

TEST(DrafterWithoutMemory, PrefillChangesNothing) {
  fail_everywhere(before_a_piece(), [](Session& s, std::vector<float>& rows) { keep(rows, s.prefill(part(316, 4))); });
}

TEST(DrafterWithoutMemory, VerifyChangesNothing) {
  for (const int64_t accepted : {1, 5}) {
    fail_everywhere(before_a_piece(), [&](Session& s, std::vector<float>&) {
      s.verify(part(316, 7), [&](const Step&) { return accepted; });
    });
  }
}

TEST(DrafterWithoutMemory, RestoreChangesNothing) {
  const Start other(100, drafter());
  fail_everywhere(before_a_piece(), [&](Session& s, std::vector<float>&) { other.snapshot().restore(s); });
}

TEST(DrafterWithoutMemory, GuessesComeLaterAndAreTheSame) {
  const std::vector<TokenId>& history = text();
  const auto seen = std::span(history).first(321);
  const auto undisturbed = before_a_piece()();
  undisturbed->prefill(part(316, 4));
  const auto expected = undisturbed->drafts()->propose(seen, 5);
  ASSERT_EQ(expected.size(), 5U);
  const std::string saved = drafts_state(*undisturbed);
  for (int64_t nth = 1;; ++nth) {
    const auto session = before_a_piece()();
    bool failed = false;
    {
      // Where the drafter's own work fails, the step stays, and the work waits.
      const FailingAllocation failing(nth);
      const bool refused = out_of_memory([&] { session->prefill(part(316, 4)); });
      ASSERT_EQ(session->length(), refused ? 316 : 320) << "allocation " << nth;
      failed = failing.failed();
    }
    if (session->length() == 316) session->prefill(part(316, 4));
    ASSERT_EQ(session->drafts()->propose(seen, 5), expected) << "allocation " << nth;
    ASSERT_EQ(drafts_state(*session), saved) << "allocation " << nth;
    if (!failed) break;
  }
}

TEST(DrafterWithoutMemory, ProposeChangesNothing) {
  const auto seen = std::span(text()).first(317);
  const auto undisturbed = before_a_piece()();
  const auto expected = undisturbed->drafts()->propose(seen, 5);
  for (int64_t nth = 1;; ++nth) {
    const auto session = before_a_piece()();
    const std::string before = state(*session);
    bool failed = false;
    std::vector<TokenId> got;
    {
      const FailingAllocation failing(nth);
      if (out_of_memory([&] { got = session->drafts()->propose(seen, 5); })) got.clear();
      failed = failing.failed();
    }
    ASSERT_EQ(state(*session), before);
    if (got.empty()) got = session->drafts()->propose(seen, 5);
    ASSERT_EQ(got, expected) << "allocation " << nth;
    if (!failed) break;
  }
}

TEST(DrafterWithoutMemory, ASessionIsUsableAfterGenerate) {
  GenerateOptions options;
  options.max_tokens = 12;
  options.ignore_end = true;
  options.sampling.temperature = 0.0;
  options.speculation.block = 4;
  const auto undisturbed = before_a_piece()();
  const auto expected = generate(*undisturbed, part(316, 3), options);
  for (int64_t nth = 1;; nth += 1 + nth / 8) {
    const auto session = before_a_piece()();
    {
      const FailingAllocation failing(nth);
      out_of_memory([&] { generate(*session, part(316, 3), options); });
      if (!failing.failed()) break;
    }
    // A part of the undisturbed text, with the caches of just that part.
    const std::vector<TokenId> reached = session->tokens();
    ASSERT_LE(reached.size(), undisturbed->tokens().size());
    ASSERT_TRUE(std::equal(reached.begin(), reached.end(), undisturbed->tokens().begin())) << "allocation " << nth;
    const auto straight = before_a_piece()();
    if (reached.size() > 316) straight->prefill(std::span(reached).subspan(316));
    ASSERT_EQ(state(*session), state(*straight)) << "allocation " << nth;
    // A snapshot of it, with the drafter's part, comes back.
    const auto again = before_a_piece()();
    Snapshot::take(*session)->restore(*again);
    ASSERT_EQ(drafts_state(*again), drafts_state(*session)) << "allocation " << nth;
    // The same text from here on, too.
    const size_t done = reached.size() - 316;
    if (done < 3) continue;
    GenerateOptions rest = options;
    rest.max_tokens = options.max_tokens - static_cast<int64_t>(done - 3) - 1;
    if (rest.max_tokens < 1) continue;
    const TokenId next = expected.tokens[done - 3];
    const auto tail = generate(*session, {&next, 1}, rest);
    ASSERT_TRUE(std::equal(tail.tokens.begin(), tail.tokens.end(),
                           expected.tokens.begin() + static_cast<std::ptrdiff_t>(done - 3) + 1))
        << "allocation " << nth;
  }
}

}  // namespace
}  // namespace slipring::testing
