// Property: encoding then decoding gives the input back, and cutting a stream anywhere changes nothing.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <slipring/stop_strings.h>
#include <slipring/tokenizer.h>

#include "text/fake_files.h"
#include "text/utf8.h"

namespace slipring {
namespace {

using testing::byte_level_facts;
using testing::gguf_tokenizer;
using testing::sentencepiece_facts;

// Text in which pieces, control tokens, broken characters and runs of spaces are likely.
rc::Gen<std::string> nasty_bytes() {
  const auto part =
      rc::gen::oneOf(rc::gen::element<std::string>("a", "th", "the", " ", "  ", "\n", "\r\n", "<s>", "<eot>", "<tool>",
                                                   "1234", "don't", "é", "e\xCC\x81", "日本", "😀", "\xF0\x9F", "\x80",
                                                   "\xFF", "\xE6\x97", "\xE2\x80\x8D", "\t"),
                     rc::gen::map(rc::gen::arbitrary<char>(), [](char c) { return std::string(1, c); }));
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(part), [](const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& each : parts) text += each;
    return text;
  });
}

std::vector<std::shared_ptr<const Tokenizer>> tokenizers() {
  std::vector<std::shared_ptr<const Tokenizer>> all;
  for (const char* pre : {"gpt-2", "default", "llama-bpe", "smollm", "qwen2", "gpt-4o", "tekken"}) {
    auto facts = byte_level_facts({{"th", TokenKind::normal},
                                   {"the", TokenKind::normal},
                                   {"<eot>", TokenKind::control},
                                   {"<tool>", TokenKind::user_defined},
                                   {"  ", TokenKind::user_defined}},
                                  {"t h", "th e"});
    facts["tokenizer.ggml.pre"] = pre;
    all.push_back(gguf_tokenizer(facts));
  }
  for (const bool space_prefix : {false, true}) {
    all.push_back(gguf_tokenizer(sentencepiece_facts({{"th", TokenKind::normal},
                                                      {"the", TokenKind::normal},
                                                      {"▁the", TokenKind::normal},
                                                      {"▁", TokenKind::normal},
                                                      {"t", TokenKind::normal},
                                                      {"h", TokenKind::normal},
                                                      {"e", TokenKind::normal},
                                                      {"é", TokenKind::normal},
                                                      {"<tool>", TokenKind::user_defined},
                                                      {"  ", TokenKind::user_defined}},
                                                     space_prefix)));
  }
  return all;
}

TEST(TextProperties, DecodingGivesTheInputBack) {
  const auto all = tokenizers();
  EXPECT_TRUE(rc::check([&all] {
    const std::string text = *nasty_bytes();
    if (text.find("\xE2\x96\x81") != std::string::npos) return;  // SentencePiece takes it for a space
    for (const auto& tokenizer : all) {
      const auto ids = tokenizer->encode(text);
      for (const TokenId id : ids) RC_ASSERT(!tokenizer->is_control(id));
      RC_ASSERT(tokenizer->decode(ids) == text);
    }
  }));
}

TEST(TextProperties, ParsedControlTokensDecodeToTheirText) {
  const auto all = tokenizers();
  EXPECT_TRUE(rc::check([&all] {
    const std::string text = *nasty_bytes();
    for (const auto& tokenizer : all) {
      // The space that is put in front of every stretch is taken away again only in front of the first one.
      if (tokenizer->drops_leading_space()) continue;
      RC_ASSERT(tokenizer->decode(tokenizer->encode(text, ControlTokens::parse), true) == text);
    }
  }));
}

TEST(TextProperties, StreamedTextIsTheOneShotText) {
  const auto all = tokenizers();
  EXPECT_TRUE(rc::check([&all] {
    for (const auto& tokenizer : all) {
      const auto ids = *rc::gen::container<std::vector<TokenId>>(
          rc::gen::inRange<TokenId>(0, static_cast<TokenId>(tokenizer->size())));
      Detokenizer detokenizer(tokenizer);
      std::string joined;
      for (const TokenId id : ids) {
        const std::string delta = detokenizer.add(id);
        RC_ASSERT(utf8::valid_prefix(delta) == delta.size());
        joined += delta;
      }
      joined += detokenizer.finish();
      RC_ASSERT(joined == valid_utf8(tokenizer->decode(ids)));
    }
  }));
}

TEST(TextProperties, ValidTextIsLeftAlone) {
  EXPECT_TRUE(rc::check([] {
    const std::string text = valid_utf8(*nasty_bytes());
    RC_ASSERT(utf8::valid_prefix(text) == text.size());
    RC_ASSERT(valid_utf8(text) == text);
  }));
}

// The definition that StopStrings is a fast form of: try every place.
std::string cut_slowly(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

size_t longest_held(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t length = 1; length < stop.size() && length <= text.size(); ++length) {
      if (text.compare(text.size() - length, length, stop, 0, length) == 0) longest = std::max(longest, length);
    }
  }
  return longest;
}

TEST(TextProperties, StopStringsAreTheirDefinitionHoweverTheTextIsCut) {
  const auto word = rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'));
  EXPECT_TRUE(rc::check([&word] {
    const auto stops = *rc::gen::container<std::vector<std::string>>(word);
    const auto pieces = *rc::gen::container<std::vector<std::string>>(word);
    StopStrings matcher(stops);
    std::string fed;
    std::string out;
    for (const std::string& piece : pieces) {
      fed += piece;
      out += matcher.add(piece);
      if (!matcher.stopped()) RC_ASSERT(matcher.held() == longest_held(fed, stops));
    }
    out += matcher.finish();
    RC_ASSERT(out == cut_slowly(fed, stops));
  }));
}

}  // namespace
}  // namespace slipring
