// Searches of split rules: what PCRE2 finds in one go they find in small steps, and what would take for ever they
// refuse.
#include "text/regex.h"

#include <gtest/gtest.h>
#include <random>

#include <slipring/error.h>

#include "text/split_rules.h"

namespace slipring {
namespace {

std::vector<std::pair<size_t, size_t>> matches(const Regex& regex, std::string_view text, Regex::Effort effort) {
  std::vector<std::pair<size_t, size_t>> found;
  Regex::Search search(regex, text, effort);
  while (const auto match = search.next()) found.emplace_back(match->begin, match->end);
  return found;
}

std::string times(std::string_view part, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += part;
  return text;
}

std::vector<std::string> patterns() {
  std::vector<std::string> all = {R"(\p{N}+)",   R"([0-9][0-9][0-9])", R"(\s)",      R"((?<=a)b+)",    R"((?<!a)b|\bc)",
                                  R"(^a|a$)",    R"(\Aa|a\z|b\Z)",     R"(a+(?=b))", R"(a+(?!b))",     R"(\w+\b|\W+)",
                                  R"(a.*?b|.)",  R"((a|b)*c)",         R"(\X)",      R"((?s).{3}|\R)", R"(b$)",
                                  R"((?m)^.+$)", R"((\w)\1)",          R"(x\K|a+)"};
  for (const char* name : {"default", "gpt-2", "smollm", "llama3", "qwen2", "gpt-4o", "tekken"}) {
    const auto rules = split_rules(name);
    for (const std::string_view pattern : rules->patterns) all.emplace_back(pattern);
  }
  return all;
}

TEST(Regex, SmallStepsFindWhatOneLookAtTheWholeTextFinds) {
  constexpr size_t kWholeText = size_t{1} << 20;
  const std::vector<std::string> parts = {"a", "b",  "c", "A",  " ",  "  ", "\n",      "\r\n", "1", "23",
                                          "é", "漢", "!", "'s", "\t", "x",  "e\u0301", "🙂", "_", "\u2028"};
  std::mt19937 random(5);
  for (const std::string& pattern : patterns()) {
    const Regex regex(pattern, "a test");
    for (int round = 0; round < 40; ++round) {
      // Few parts, so that runs are long; some rounds with runs of hundreds.
      std::string text;
      const size_t kinds = 1 + random() % 4;
      std::vector<std::string> chosen;
      for (size_t i = 0; i < kinds; ++i) chosen.push_back(parts[random() % parts.size()]);
      while (text.size() < 1 + 30U * static_cast<size_t>(round)) {
        text += times(chosen[random() % kinds], random() % 8 == 0 ? random() % 300 : 1 + random() % 3);
      }
      const auto whole = matches(regex, text, Regex::Effort(kWholeText));
      for (const size_t reach : {4U, 7U, 64U, 256U}) {
        EXPECT_EQ(matches(regex, text, Regex::Effort(reach)), whole) << pattern << " on " << text.substr(0, 200);
      }
    }
  }
}

void expect_refused(const std::string& pattern, const std::string& text) {
  const Regex regex(pattern, "a test");
  try {
    matches(regex, text, Regex::Effort());
    FAIL() << "searched: " << pattern;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("too many steps"), std::string::npos) << error.what();
  }
}

TEST(Regex, PatternsWithoutEndAreRefused) {
  // Each match on its own stayed within a limit on matches.
  expect_refused("(?:a+)+b|a", times(std::string(22, 'a') + "c", 20));
  expect_refused("a.*?b|.", std::string(20'000, 'a'));
  expect_refused("a.*b|.", std::string(20'000, 'a'));
  expect_refused("a*[bc]|d", std::string(20'000, 'a'));
  expect_refused("(a+)+$|b", std::string(40, 'a') + "c");
}

TEST(Regex, TheEffortIsSharedBySearches) {
  const Regex regex("(?:a+)+b|a", "a test");
  const std::string text = std::string(12, 'a') + "c";
  Regex::Effort effort;
  const auto search_all = [&](int count) {
    for (int i = 0; i < count; ++i) {
      Regex::Search search(regex, text, effort);
      while (search.next()) {
      }
    }
  };
  EXPECT_NO_THROW(search_all(1));
  EXPECT_THROW(search_all(10'000), Error);
}

TEST(Regex, KnownRulesAreFastOnTheWorstOfTexts) {
  constexpr size_t kSize = 300'000;
  for (const char* name : {"default", "gpt-2", "smollm", "llama3", "qwen2", "gpt-4o", "tekken"}) {
    const auto rules = split_rules(name);
    for (const std::string_view pattern : rules->patterns) {
      const Regex regex(pattern, name);
      for (const std::string part :
           {"a", "A", " ", "7", "漢", "!", "\n", " \n", "a ", "\t \r\n", "Aa", "'s", "e\u0301"}) {
        const std::string run = times(part, kSize / part.size());
        EXPECT_NO_THROW(matches(regex, run, Regex::Effort())) << pattern << " on " << part;
        EXPECT_NO_THROW(matches(regex, run + "x1", Regex::Effort())) << pattern << " on " << part;
      }
      EXPECT_NO_THROW(matches(regex, times(std::string(300, ' ') + std::string(300, '7') + std::string(300, 'b'), 300),
                              Regex::Effort()));
    }
  }
}

TEST(Regex, VerbsOfPcre2AreRefused) {
  for (const char* pattern : {"(*NO_JIT)a", "(*LIMIT_MATCH=1)a", "a(*SKIP)b", R"(\Ga)", "[]](*FAIL)", R"(\\(*F)"}) {
    EXPECT_THROW(Regex(pattern, "a test"), Error) << pattern;
  }
  for (const char* pattern : {R"(\(*a)", "[(*]a", "[^](*]a", R"([\](*]a)", R"([\G]a)"}) {
    try {
      const Regex regex(pattern, "a test");
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find("VERBS"), std::string::npos) << pattern;
    }
  }
}

}  // namespace
}  // namespace slipring
