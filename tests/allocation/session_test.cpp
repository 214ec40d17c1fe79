// Want of memory at every allocation of a session's calls: tokens, offsets and every byte of keys and values stay, and
// the same call made again gives the same bits.
#include <map>

#include "engine/step.h"
#include "support.h"

namespace slipring::testing {
namespace {

using Rows = std::vector<float>;

void keep(Rows& rows, std::span<const float> row) {
  rows.insert(rows.end(), row.begin(), row.end());
}

// 256 positions fill the full layer's page and 16 rounds of the rings; a step from here gets a page and evicts.
const Start& at_page_end() {
  static const Start start(256);
  return start;
}

TEST(WithoutMemory, PrefillChangesNothing) {
  EXPECT_GT(fail_everywhere(at_page_end(), [](Session& s, Rows& rows) { keep(rows, s.prefill(part(256, 12))); }), 50);
}

TEST(WithoutMemory, PrefillOfAnEmptySessionChangesNothing) {
  EXPECT_GT(fail_everywhere(Start(0), [](Session& s, Rows& rows) { keep(rows, s.prefill(part(0, 16))); }), 50);
}

TEST(WithoutMemory, DecodeChangesNothing) {
  // Written first: the layers before the one that fails have evicted a position each.
  EXPECT_GT(fail_everywhere(at_page_end(), [](Session& s, Rows& rows) { keep(rows, s.decode(text()[256])); }), 50);
  EXPECT_GT(fail_everywhere(Start(9), [](Session& s, Rows& rows) { keep(rows, s.decode(text()[9])); }), 50);
}

TEST(WithoutMemory, ScoreChangesNothing) {
  EXPECT_GT(fail_everywhere(at_page_end(),
                            [](Session& s, Rows& rows) {
                              rows.clear();  // a step that fails gives its rows again
                              s.score(part(256, 9), [&](int64_t, std::span<const float> row) { keep(rows, row); });
                            }),
            50);
}

TEST(WithoutMemory, VerifyWithAPartialCommitChangesNothing) {
  // Two slots before the rings' end and two positions before the page's: what is accepted crosses both.
  const Start start(254);
  for (const int64_t accepted : {0, 1, 5, 7}) {
    EXPECT_GT(fail_everywhere(start,
                              [&](Session& s, Rows& rows) {
                                s.verify(part(254, 7), [&](const Step& step) {
                                  for (int64_t i = 0; i < accepted; ++i) keep(rows, step.logits(0, i));
                                  return accepted;
                                });
                              }),
              50)
        << accepted << " accepted";
  }
  EXPECT_GT(fail_everywhere(start, [](Session& s, Rows&) { s.verify(part(254, 1), [](const Step&) { return 1; }); }),
            50);
}

TEST(WithoutMemory, GoingBackNeedsNone) {
  EXPECT_EQ(fail_everywhere(at_page_end(), [](Session& s, Rows&) { s.truncate(255); }), 0);
  EXPECT_EQ(fail_everywhere(at_page_end(), [](Session& s, Rows&) { s.clear(); }), 0);
}

TEST(WithoutMemory, RestoreChangesNothing) {
  const Start other(100);
  EXPECT_GT(fail_everywhere(at_page_end(), [&](Session& s, Rows&) { other.snapshot().restore(s); }), 20);
  EXPECT_GT(fail_everywhere(at_page_end(), [&](Session& s, Rows&) { other.snapshot().restore(s, 99); }), 20);
}

TEST(WithoutMemory, ALongPromptStopsBetweenItsSteps) {
  const Start start(250, {}, 8);
  std::map<int64_t, std::string> between;
  const auto undisturbed = start();
  const auto expected_row = undisturbed->prefill(part(250, 40), [&](int64_t, int64_t) {
    between[undisturbed->length()] = state(*undisturbed);
    return true;
  });
  const Rows expected(expected_row.begin(), expected_row.end());
  for (int64_t nth = 1;; nth += 1 + nth / 16) {
    const auto session = start();
    bool refused = false;
    {
      const FailingAllocation failing(nth);
      refused = out_of_memory([&] { session->prefill(part(250, 40)); });
      if (!failing.failed()) break;
    }
    ASSERT_TRUE(between.contains(session->length())) << "allocation " << nth;
    ASSERT_EQ(state(*session), between[session->length()]) << "allocation " << nth;
    if (!refused) continue;
    const auto row = session->prefill(part(session->length(), 290 - session->length()));
    ASSERT_TRUE(std::equal(row.begin(), row.end(), expected.begin(), expected.end())) << "allocation " << nth;
    ASSERT_EQ(state(*session), between[290]) << "allocation " << nth;
  }
}

struct Enough {};

TEST(Session, AFunctionThatThrowsStopsTheStepAndNoMore) {
  const auto session = at_page_end()();
  const std::string before = state(*session);
  EXPECT_THROW(session->score(part(256, 9),
                              [](int64_t i, std::span<const float>) {
                                if (i == 4) throw Enough();
                              }),
               Enough);
  EXPECT_EQ(state(*session), before);
  EXPECT_THROW(session->score(part(256, 1), [](int64_t, std::span<const float>) { throw Enough(); }), Enough);
  EXPECT_EQ(state(*session), before) << "written first";
  EXPECT_THROW(session->verify(part(256, 9), [](const Step&) -> int64_t { throw Enough(); }), Enough);
  EXPECT_EQ(state(*session), before);
  int64_t seen = 0;
  EXPECT_THROW(session->score(part(256, 40),
                              [&](int64_t i, std::span<const float>) {
                                EXPECT_EQ(i, seen++);
                                if (i == 20) throw Enough();
                              }),
               Enough);
  EXPECT_EQ(session->length(), 256 + 16) << "the first step stays";
  session->clear();
  session->prefill(part(0, 256));
  EXPECT_EQ(state(*session), before);
}

}  // namespace
}  // namespace slipring::testing
