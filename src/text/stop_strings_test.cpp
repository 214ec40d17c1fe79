#include <gtest/gtest.h>

#include <slipring/error.h>
#include <slipring/stop_strings.h>

namespace slipring {
namespace {

// What comes out of all pieces together, and whether a stop string ended it.
struct Outcome {
  std::string text;
  bool stopped = false;
  bool operator==(const Outcome&) const = default;
};

Outcome feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStrings matcher(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) outcome.text += matcher.add(piece);
  outcome.text += matcher.finish();
  outcome.stopped = matcher.stopped();
  return outcome;
}

void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << '"' << outcome.text << '"' << (outcome.stopped ? " stopped" : "");
}

TEST(StopStrings, StopThatSpansPieces) {
  EXPECT_EQ(feed({"own fox"}, {"The", " quick", " br", "own", " f", "ox"}), (Outcome{"The quick br", true}));
}

TEST(StopStrings, TextThatEndsInsideAStopStringIsReleased) {
  EXPECT_EQ(feed({"DEFGHIJ"}, {"ABC", "DEF", "GHI"}), (Outcome{"ABCDEFGHI", false}));
}

TEST(StopStrings, MatchThatBeginsInsideAFailedOne) {
  EXPECT_EQ(feed({"aab"}, {"a", "a", "a", "b"}), (Outcome{"a", true}));
  EXPECT_EQ(feed({"aab"}, {"aaab"}), (Outcome{"a", true}));
}

TEST(StopStrings, TheOneThatEndsFirstCounts) {
  EXPECT_EQ(feed({"b", "abc"}, {"xabc"}), (Outcome{"xa", true}));
  EXPECT_EQ(feed({"abc", "bc"}, {"xabc"}), (Outcome{"x", true}));  // both end here: the longest
}

TEST(StopStrings, StopInsideOnePiece) {
  EXPECT_EQ(feed({".\n"}, {"x.\ny"}), (Outcome{"x", true}));
}

TEST(StopStrings, NothingComesOutAfterTheStop) {
  StopStrings matcher({"x"});
  EXPECT_EQ(matcher.add("axb"), "a");
  EXPECT_EQ(matcher.add("c"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopStrings, HoldsBackExactlyTheLongestPrefixOfAStop) {
  StopStrings matcher({"abcabd", "cax"});
  EXPECT_EQ(matcher.add("zabcab"), "z");
  EXPECT_EQ(matcher.held(), 5U);
  EXPECT_EQ(matcher.add("c"), "abc");  // "abc" remains, of "abcabc"
  EXPECT_EQ(matcher.held(), 3U);
  EXPECT_EQ(matcher.add("q"), "abcq");
  EXPECT_EQ(matcher.held(), 0U);
}

TEST(StopStrings, EmptyStringsAreIgnored) {
  EXPECT_EQ(feed({""}, {"a", "b"}), (Outcome{"ab", false}));
  EXPECT_EQ(feed({"", "b"}, {"a", "b"}), (Outcome{"a", true}));
  EXPECT_EQ(feed({}, {"a", "b"}), (Outcome{"ab", false}));
}

TEST(StopStrings, HalfACharacterIsRefused) {
  try {
    StopStrings matcher({"\xF0\x9F"});
    FAIL() << "took a stop string that is no text";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  }
}

TEST(StopStrings, CharactersThatShareBytesWithAStopAreNotHeld) {
  StopStrings matcher({"é"});
  EXPECT_EQ(matcher.add("è"), "è");
  EXPECT_EQ(matcher.add("é"), "");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopStrings, ThousandsOfThem) {
  std::vector<std::string> stops;
  for (int i = 0; i < 5000; ++i) stops.push_back("stop number " + std::to_string(i) + ".");
  EXPECT_EQ(feed(stops, {"a stop number ", "49", "99", ". b"}), (Outcome{"a ", true}));
  EXPECT_EQ(feed(stops, {"a stop number ", "5000", ". b"}), (Outcome{"a stop number 5000. b", false}));
}

TEST(StopStrings, CopiesAreIndependent) {
  StopStrings first({"ab"});
  EXPECT_EQ(first.add("a"), "");
  StopStrings second = first;
  EXPECT_EQ(first.add("b"), "");
  EXPECT_TRUE(first.stopped());
  EXPECT_EQ(second.add("c"), "ac");
  EXPECT_FALSE(second.stopped());
}

}  // namespace
}  // namespace slipring
