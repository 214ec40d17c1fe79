// Rules that no published model shows on its own: hostile vocabularies, control tokens, BOS, turn ends.
#include <gtest/gtest.h>

#include <slipring/error.h>
#include <slipring/tokenizer.h>

#include "text/fake_files.h"

namespace slipring {
namespace {

using nlohmann::json;
using testing::byte_level_facts;
using testing::FakeFiles;
using testing::gguf_tokenizer;
using testing::sentencepiece_facts;
using Ids = std::vector<TokenId>;

constexpr auto parse = ControlTokens::parse;

// The error line that a vocabulary is refused with.
std::string refusal(json facts) {
  try {
    gguf_tokenizer(std::move(facts));
  } catch (const Error& error) {
    const std::string line = error.what();
    EXPECT_EQ(line.find('\n'), std::string::npos);
    return line;
  }
  return "no error";
}

bool mentions(const std::string& line, std::string_view part) {
  return line.find(part) != std::string::npos;
}

TEST(Vocabulary, RepeatedStringsLoadAndTheLowestIdIsUsed) {
  const auto tokenizer =
      gguf_tokenizer(byte_level_facts({{"th", TokenKind::normal}, {"th", TokenKind::normal}}, {"t h"}));
  EXPECT_EQ(tokenizer->encode("th"), (Ids{256}));
  EXPECT_EQ(tokenizer->find("th"), 256);
  EXPECT_EQ(tokenizer->decode(Ids{257}), "th");
  const auto pieces = gguf_tokenizer(sentencepiece_facts(
      {{"a", TokenKind::normal}, {"b", TokenKind::normal}, {"ab", TokenKind::normal}, {"ab", TokenKind::normal}},
      false));
  EXPECT_EQ(pieces->encode("ab"), (Ids{261}));
  EXPECT_EQ(pieces->decode(Ids{262}), "ab");
}

TEST(Vocabulary, ByteTokensMustBeBytes) {
  for (const char* bad : {"<0x-1>", "<0xG0>", "<0x 1>", "<0x0>", "<0x100>", "0x41", ""}) {
    const std::string line = refusal(sentencepiece_facts({{bad, TokenKind::byte}}, false));
    EXPECT_TRUE(mentions(line, "byte token 259")) << line;
  }
}

TEST(Vocabulary, ListsOfOtherLengthOrTypeAreNamed) {
  json facts = sentencepiece_facts({{"a", TokenKind::normal}}, false);
  facts["tokenizer.ggml.scores"] = {1.0, 2.0};
  EXPECT_TRUE(mentions(refusal(facts), "tokenizer.ggml.scores")) << refusal(facts);
  facts["tokenizer.ggml.scores"] = "no list";
  EXPECT_TRUE(mentions(refusal(facts), "tokenizer.ggml.scores")) << refusal(facts);
  facts.erase("tokenizer.ggml.scores");
  EXPECT_TRUE(mentions(refusal(facts), "tokenizer.ggml.scores")) << refusal(facts);

  facts = byte_level_facts();
  facts["tokenizer.ggml.token_type"] = {1, 1};
  EXPECT_TRUE(mentions(refusal(facts), "tokenizer.ggml.token_type")) << refusal(facts);
  facts = byte_level_facts();
  facts["tokenizer.ggml.token_type"][5] = 7;
  EXPECT_TRUE(mentions(refusal(facts), "tokenizer.ggml.token_type")) << refusal(facts);
  facts["tokenizer.ggml.token_type"][5] = -1;
  EXPECT_TRUE(mentions(refusal(facts), "tokenizer.ggml.token_type")) << refusal(facts);
}

TEST(Vocabulary, IdsOutOfRangeAreNamed) {
  for (const char* key : {"bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id"}) {
    for (const int64_t id : {int64_t{-1}, int64_t{256}, int64_t{1} << 40}) {
      json facts = byte_level_facts();
      facts[std::string("tokenizer.ggml.") + key] = id;
      EXPECT_TRUE(mentions(refusal(facts), key)) << refusal(facts);
    }
  }
}

TEST(Vocabulary, UnknownModelsAndRulesAreRefusedByName) {
  json facts = byte_level_facts();
  facts["tokenizer.ggml.model"] = "t5";
  EXPECT_TRUE(mentions(refusal(facts), "\"t5\"")) << refusal(facts);
  facts = byte_level_facts();
  facts["tokenizer.ggml.pre"] = "no-such-rule";
  EXPECT_TRUE(mentions(refusal(facts), "no-such-rule")) << refusal(facts);
  facts = byte_level_facts();
  facts["tokenizer.ggml.tokens"] = json::array();
  EXPECT_TRUE(mentions(refusal(facts), "tokenizer.ggml.tokens")) << refusal(facts);
}

TEST(Vocabulary, MergesMustBePairsAndMayNameAbsentTokens) {
  for (const char* bad : {"", "ab", "a ", " ab"}) {
    const std::string line = refusal(byte_level_facts({}, {bad}));
    EXPECT_TRUE(mentions(line, "tokenizer.ggml.merges")) << line;
  }
  const auto tokenizer = gguf_tokenizer(byte_level_facts({{"he", TokenKind::normal}}, {"t h", "h e", "zz q"}));
  EXPECT_EQ(tokenizer->encode("the"), (Ids{'t', 256}));
}

TEST(ControlTokens, UserTextNeverBecomesOne) {
  const json facts = byte_level_facts({{"<bos>", TokenKind::control}, {"<|im_end|>", TokenKind::control}});
  const auto tokenizer = gguf_tokenizer(facts);
  for (const char* text : {"<bos>", "a<|im_end|>b", "<|im_end|><bos>", "<<bos>>"}) {
    for (const TokenId id : tokenizer->encode(text)) EXPECT_LT(id, 256) << text;
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
  EXPECT_EQ(tokenizer->encode("a<|im_end|>b<bos>", parse), (Ids{'a', 257, 'b', 256}));
}

// Even where the vocabulary's own joins lead to a control token's spelling.
TEST(ControlTokens, JoinsNeverReachOne) {
  std::vector<std::pair<std::string, TokenKind>> pieces;
  for (const char* text : {"<", "s", ">", "<s"}) pieces.emplace_back(text, TokenKind::normal);
  const auto tokenizer = gguf_tokenizer(sentencepiece_facts(pieces, false));
  EXPECT_EQ(tokenizer->encode("<s>"), (Ids{262, 261}));
  EXPECT_EQ(tokenizer->encode("<s>", parse), (Ids{1}));
}

TEST(ControlTokens, UserDefinedTokensMatchAlwaysAndTheLongestWins) {
  const auto tokenizer =
      gguf_tokenizer(byte_level_facts({{"  ", TokenKind::user_defined}, {"   ", TokenKind::user_defined}}));
  EXPECT_EQ(tokenizer->encode("a     b"), (Ids{'a', 257, 256, 'b'}));
  EXPECT_EQ(tokenizer->encode("a     b", parse), (Ids{'a', 257, 256, 'b'}));
}

TEST(Bos, ExactlyOneDecidedByTheFirstId) {
  json facts = byte_level_facts({{"<bos>", TokenKind::control}});
  facts["tokenizer.ggml.bos_token_id"] = 256;
  facts["tokenizer.ggml.add_bos_token"] = true;
  const auto tokenizer = gguf_tokenizer(facts);
  EXPECT_EQ(with_one_bos(*tokenizer, tokenizer->encode("<bos>x", parse)), (Ids{256, 'x'}));
  EXPECT_EQ(with_one_bos(*tokenizer, tokenizer->encode("<bos><bos>x", parse)), (Ids{256, 'x'}));
  EXPECT_EQ(with_one_bos(*tokenizer, tokenizer->encode("x", parse)), (Ids{256, 'x'}));
  EXPECT_EQ(with_one_bos(*tokenizer, {}), (Ids{256}));
  const Ids raw = with_one_bos(*tokenizer, tokenizer->encode("<bos>"));
  EXPECT_EQ(raw.front(), 256);
  EXPECT_EQ(tokenizer->decode(raw), "<bos>");

  facts["tokenizer.ggml.add_bos_token"] = false;
  const auto without = gguf_tokenizer(facts);
  EXPECT_EQ(with_one_bos(*without, {'x'}), (Ids{'x'}));
}

TEST(TurnEnds, EveryGgufKeyCounts) {
  json facts =
      byte_level_facts({{"<e>", TokenKind::control}, {"<f>", TokenKind::control}, {"<g>", TokenKind::control}});
  EXPECT_EQ(gguf_tokenizer(facts)->end_of_turn(), Ids{});
  facts["tokenizer.ggml.eot_token_id"] = 257;
  EXPECT_EQ(gguf_tokenizer(facts)->end_of_turn(), Ids{257});
  facts["tokenizer.ggml.eos_token_id"] = 256;
  facts["tokenizer.ggml.eom_token_id"] = 258;
  EXPECT_EQ(gguf_tokenizer(facts)->end_of_turn(), (Ids{256, 257, 258}));
  facts["tokenizer.ggml.eot_token_id"] = 256;
  EXPECT_EQ(gguf_tokenizer(facts)->end_of_turn(), (Ids{256, 258}));
}

// Gemma's GGUF files name no eot.
TEST(TurnEnds, WellKnownNamesServeWhereTheFileNamesNone) {
  json facts = byte_level_facts({{"<eos>", TokenKind::control}, {"<end_of_turn>", TokenKind::control}});
  facts["tokenizer.ggml.eos_token_id"] = 256;
  EXPECT_EQ(gguf_tokenizer(facts)->end_of_turn(), (Ids{256, 257}));
}

TEST(Encode, InvalidBytesBecomeByteTokens) {
  const auto byte_level = gguf_tokenizer(byte_level_facts({{"Ã©", TokenKind::normal}}, {"Ã ©"}));
  EXPECT_EQ(byte_level->encode("\xFF\xC3\xA9\xC3"), (Ids{0xFF, 256, 0xC3}));
  const auto pieces = gguf_tokenizer(sentencepiece_facts({{"a", TokenKind::normal}}, true));
  const std::string text =
      "\xFF"
      "a\xE6\x97";
  EXPECT_EQ(pieces->encode(text), (Ids{3 + 0xFF, 259, 3 + 0xE6, 3 + 0x97}));
  EXPECT_EQ(pieces->decode(pieces->encode(text)), text);
}

TEST(Encode, ByteWithoutTokenIsAnError) {
  json facts = byte_level_facts();
  facts["tokenizer.ggml.tokens"]['x'] = "unreachable";
  const auto tokenizer = gguf_tokenizer(facts);
  EXPECT_THROW(tokenizer->encode("x"), Error);
  EXPECT_EQ(tokenizer->encode("y"), Ids{'y'});
}

TEST(Encode, IdsOutOfRangeAreErrors) {
  const auto tokenizer = gguf_tokenizer(byte_level_facts());
  for (const TokenId id : {-1, 256, INT32_MAX, INT32_MIN}) {
    EXPECT_THROW(tokenizer->token_bytes(id), Error);
    EXPECT_THROW(tokenizer->token_text(id), Error);
    EXPECT_THROW(tokenizer->is_control(id), Error);
    EXPECT_THROW(tokenizer->decode(Ids{id}), Error);
  }
}

// Half a million characters of one kind: any step that is not near-linear would take minutes.
TEST(Encode, OneUnbrokenRunIsFast) {
  std::vector<std::pair<std::string, TokenKind>> pieces;
  for (const char* text : {"a", "aa", "aaaa", "aaaaaaaa", "▁", "▁▁"}) pieces.emplace_back(text, TokenKind::normal);
  const auto sentencepiece = gguf_tokenizer(sentencepiece_facts(pieces, false));
  for (const char* pre : {"gpt-2", "default", "llama-bpe", "gpt-4o"}) {
    json facts = byte_level_facts({{"aa", TokenKind::normal}, {"aaaa", TokenKind::normal}}, {"a a", "aa aa"});
    facts["tokenizer.ggml.pre"] = pre;
    const auto byte_level = gguf_tokenizer(facts);
    for (const char* unit : {"a", "A", " ", "\n", "1", "!", "\t ", "あ", "́", "a1", "'s", "\r"}) {
      std::string text;
      while (text.size() < 500'000) text += unit;
      EXPECT_EQ(byte_level->decode(byte_level->encode(text)), text) << pre << " " << unit;
    }
  }
  for (const char* unit : {"a", " ", "あ", "\xFF"}) {
    std::string text;
    while (text.size() < 500'000) text += unit;
    EXPECT_EQ(sentencepiece->decode(sentencepiece->encode(text)), text) << unit;
  }
}

}  // namespace
}  // namespace slipring
