// Streaming: joined deltas are the one-shot text, whatever the bytes.
#include <gtest/gtest.h>
#include <ostream>

#include <slipring/tokenizer.h>

#include "text/fake_files.h"

namespace slipring {
namespace {

using testing::byte_level_facts;
using testing::gguf_tokenizer;
using testing::sentencepiece_facts;

const std::string fffd = "\xEF\xBF\xBD";

struct ByteCase {
  std::string bytes;
  std::string text;
};

// Test names may not depend on addresses.
void PrintTo(const ByteCase& byte_case, std::ostream* out) {
  *out << byte_case.bytes.size() << " bytes";
}

class DetokenizerBytes : public ::testing::TestWithParam<ByteCase> {};

TEST_P(DetokenizerBytes, JoinsToTheOneShotText) {
  const auto tokenizer = gguf_tokenizer(byte_level_facts());
  const auto& [bytes, text] = GetParam();
  Detokenizer detokenizer(tokenizer);
  std::string joined;
  std::vector<TokenId> ids;
  for (const char c : bytes) {
    ids.push_back(static_cast<uint8_t>(c));
    const std::string delta = detokenizer.add(ids.back());
    EXPECT_EQ(valid_utf8(delta), delta) << "half a character came out";
    joined += delta;
  }
  joined += detokenizer.finish();
  EXPECT_EQ(joined, text);
  EXPECT_EQ(valid_utf8(tokenizer->decode(ids)), text);
  EXPECT_EQ(detokenizer.finish(), "") << "the tail came out twice";
}

INSTANTIATE_TEST_SUITE_P(
    ValidAndInvalid, DetokenizerBytes,
    ::testing::Values(ByteCase{"\xC4\x8F", "\xC4\x8F"}, ByteCase{"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
                      ByteCase{"\xE6\x97 a", fffd + " a"}, ByteCase{"\xF0\x9F", fffd}, ByteCase{"\x80", fffd},
                      ByteCase{"\xFF", fffd}, ByteCase{"\xC0\xAF", fffd + fffd},
                      ByteCase{"\xED\xA0\x80", fffd + fffd + fffd},
                      ByteCase{"\xF4\x90\x80\x80", fffd + fffd + fffd + fffd},
                      ByteCase{"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", fffd + fffd + fffd + fffd + "A"},
                      ByteCase{"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",
                               "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7"},
                      ByteCase{"", ""}));

TEST(Detokenizer, CharactersComeOutWithTheirLastByte) {
  Detokenizer detokenizer(gguf_tokenizer(byte_level_facts()));
  EXPECT_EQ(detokenizer.add(0xF0), "");
  EXPECT_EQ(detokenizer.add(0x9F), "");
  EXPECT_EQ(detokenizer.add(0x98), "");
  EXPECT_EQ(detokenizer.add(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(detokenizer.add(0xE6), "");
  EXPECT_EQ(detokenizer.add('a'), fffd + "a");
}

// A vocabulary that puts a space in front of a text takes one away again, from the first token only.
TEST(Detokenizer, DropsOneLeadingSpace) {
  const auto tokenizer = gguf_tokenizer(sentencepiece_facts(
      {{"▁", TokenKind::normal}, {"▁leading", TokenKind::normal}, {"▁x", TokenKind::normal}}, true));
  const std::vector<TokenId> ids{259, 260, 261};
  EXPECT_EQ(tokenizer->decode(ids), " leading x");
  Detokenizer detokenizer(tokenizer);
  std::string joined;
  for (const TokenId id : ids) joined += detokenizer.add(id);
  EXPECT_EQ(joined + detokenizer.finish(), " leading x");
  Detokenizer continued(tokenizer, true);
  EXPECT_EQ(continued.add(260), " leading");
  // BOS is no text: the first token behind it is the first one.
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{1, 260}), "leading");
}

TEST(Detokenizer, KeepsSpacesThatWereNotAdded) {
  const auto tokenizer =
      gguf_tokenizer(sentencepiece_facts({{"▁", TokenKind::normal}, {"▁x", TokenKind::normal}}, false));
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{259, 260}), "  x");
}

TEST(Detokenizer, ControlTokensAreSilentAndCutNoCharacter) {
  const auto tokenizer = gguf_tokenizer(byte_level_facts({{"<|eot|>", TokenKind::control}}));
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.add(0xC3), "");
  EXPECT_EQ(detokenizer.add(256), "");
  EXPECT_EQ(detokenizer.add(0xA9), "é");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{'a', 256, 'b'}), "ab");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{'a', 256, 'b'}, true), "a<|eot|>b");
}

}  // namespace
}  // namespace slipring
