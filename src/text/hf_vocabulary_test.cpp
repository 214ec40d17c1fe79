// Hugging Face folders: what tokenizer.json and the files beside it say, right and wrong.
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <slipring/error.h>
#include <slipring/tokenizer.h>

#include "formats/temp_folder.h"
#include "text/fake_files.h"

namespace slipring {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

class HfFolder : public ::testing::Test {
 protected:
  void write(const char* name, const json& value) const { write_text(name, value.dump()); }
  void write_text(const char* name, const std::string& text) const { folder_.write(name, text); }

  std::shared_ptr<const Tokenizer> load(const json& config = json::object()) const {
    return Tokenizer::load(testing::FakeFiles(false, folder_.path(), config));
  }
  std::string refusal() const {
    try {
      load();
    } catch (const Error& error) {
      const std::string line = error.what();
      EXPECT_EQ(line.find('\n'), std::string::npos);
      return line;
    }
    return "no error";
  }
  void expect_refusal(const json& tokenizer, std::string_view part) const {
    write("tokenizer.json", tokenizer);
    const std::string line = refusal();
    EXPECT_NE(line.find("tokenizer.json"), std::string::npos) << line;
    EXPECT_NE(line.find(part), std::string::npos) << line;
  }

  testing::TempFolder folder_;
};

json added(int id, const char* content, bool special) {
  return {{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
}

// A byte-level vocabulary: ids 0 to 255 are the bytes, 256 is "th".
json byte_level() {
  json vocab = json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[byte_level::spelling(static_cast<uint8_t>(byte))] = byte;
  vocab["th"] = 256;
  return {{"added_tokens", {added(257, "<bos>", true), added(258, "<eos>", true), added(259, "<|eot|>", true)}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"t h"}}}}};
}

TEST_F(HfFolder, EveryListedTurnEndCounts) {
  write("tokenizer.json", byte_level());
  EXPECT_EQ(load()->end_of_turn(), Ids{});
  write("generation_config.json", {{"eos_token_id", {258, 259}}});
  EXPECT_EQ(load()->end_of_turn(), (Ids{258, 259}));
  write("generation_config.json", {{"eos_token_id", 258}});
  EXPECT_EQ(load()->end_of_turn(), (Ids{258}));
  EXPECT_EQ(load({{"eos_token_id", {258, 259}}})->end_of_turn(), (Ids{258, 259}));
  write("tokenizer_config.json", {{"eos_token", {{"content", "<bos>"}}}});
  EXPECT_EQ(load()->end_of_turn(), (Ids{258, 257}));
}

TEST_F(HfFolder, TurnEndsByNameOnlyWithoutAListOfTheFolder) {
  write("tokenizer.json", byte_level());
  write("tokenizer_config.json", {{"eos_token", "<eos>"}});
  EXPECT_EQ(load()->end_of_turn(), (Ids{258, 259}));
  write("generation_config.json", {{"eos_token_id", 258}});
  EXPECT_EQ(load()->end_of_turn(), (Ids{258}));
}

TEST_F(HfFolder, TurnEndsOutOfRangeAreNamed) {
  write("tokenizer.json", byte_level());
  for (const json& id : {json(-1), json(260), json(1e30), json("x"), json(18446744073709551615U)}) {
    write("generation_config.json", {{"eos_token_id", id}});
    EXPECT_NE(refusal().find("eos_token_id"), std::string::npos) << refusal();
  }
}

TEST_F(HfFolder, BosFromTheConfigOrThePostProcessor) {
  json tokenizer = byte_level();
  write("tokenizer.json", tokenizer);
  write("tokenizer_config.json", {{"bos_token", "<bos>"}});
  EXPECT_EQ(load()->bos(), 257);
  EXPECT_FALSE(load()->add_bos());
  tokenizer["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {{{"SpecialToken", {{"id", "<bos>"}}}}}}};
  write("tokenizer.json", tokenizer);
  EXPECT_TRUE(load()->add_bos());
  write("tokenizer_config.json", {{"bos_token", "<bos>"}, {"add_bos_token", false}});
  EXPECT_FALSE(load()->add_bos());
}

TEST_F(HfFolder, ChatTemplateFromAllItsPlaces) {
  write("tokenizer.json", byte_level());
  EXPECT_EQ(load()->chat_template(), std::nullopt);
  write("tokenizer_config.json", {{"chat_template", "one"}});
  EXPECT_EQ(load()->chat_template(), "one");
  write("tokenizer_config.json",
        {{"chat_template", {{{"name", "rag"}, {"template", "two"}}, {{"name", "default"}, {"template", "three"}}}}});
  EXPECT_EQ(load()->chat_template(), "three");
  write_text("chat_template.jinja", "four");
  EXPECT_EQ(load()->chat_template(), "four");
}

TEST_F(HfFolder, ControlTokensOnlyWhereParsed) {
  write("tokenizer.json", byte_level());
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->encode("th<|eot|>", ControlTokens::parse), (Ids{256, 259}));
  EXPECT_EQ(tokenizer->encode("th<|eot|>").size(), 8U);
  EXPECT_EQ(tokenizer->size(), 260);
}

TEST_F(HfFolder, WrongFilesAreRefusedInOneLine) {
  EXPECT_NE(refusal().find("tokenizer.json"), std::string::npos);
  for (const char* text : {"", "[]", "{", "null", "{\"model\":3}", "{\"model\":{}}", "\xFF"}) {
    write_text("tokenizer.json", text);
    EXPECT_NE(refusal().find("tokenizer.json"), std::string::npos) << text << ": " << refusal();
  }
  json file = byte_level();
  file["model"]["type"] = "Unigram";
  expect_refusal(file, "Unigram");
  file = byte_level();
  file["model"]["vocab"]["x y"] = -1;
  expect_refusal(file, "model.vocab");
  file["model"]["vocab"]["x y"] = 1000000000;
  expect_refusal(file, "model.vocab");
  file["model"]["vocab"]["x y"] = "1";
  expect_refusal(file, "model.vocab");
  file = byte_level();
  for (const json& merge : {json("t"), json("t  "), json({"t"}), json(3), json({"t", 3}), json("t zz"), json("t e")}) {
    file["model"]["merges"] = {merge};
    expect_refusal(file, "merge");
  }
  file = byte_level();
  file["added_tokens"] = {{{"content", "x"}}};
  expect_refusal(file, "added_tokens");
  file["added_tokens"] = {added(-1, "x", true)};
  expect_refusal(file, "added_tokens");
  file = byte_level();
  file["model"]["unk_token"] = "absent";
  expect_refusal(file, "unk_token");
}

TEST_F(HfFolder, RulesThatAreNotThereAreRefusedByName) {
  json file = byte_level();
  file["normalizer"] = {{"type", "Lowercase"}};
  expect_refusal(file, "Lowercase");
  file = byte_level();
  file["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
  expect_refusal(file, "UnicodeScripts");
  file["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(unclosed"}}}, {"behavior", "Isolated"}};
  expect_refusal(file, "pre_tokenizer");
  file["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "x*"}}}, {"behavior", "Isolated"}};
  expect_refusal(file, "at least one character");
  file = byte_level();
  file["decoder"] = {{"type", "WordPiece"}};
  expect_refusal(file, "WordPiece");
}

// Cohere's and GPT-NeoX's tokenizers compose first: a letter and its accent are the one character.
TEST_F(HfFolder, TextIsComposedWhereTheFileSaysSo) {
  json file = byte_level();
  write("tokenizer.json", file);
  EXPECT_EQ(load()->encode("e\u0301"), (Ids{0x65, 0xCC, 0x81}));
  file["normalizer"] = {{"type", "NFC"}};
  write("tokenizer.json", file);
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->encode("e\u0301"), (Ids{0xC3, 0xA9}));                          // é
  EXPECT_EQ(tokenizer->encode("\u1100\u1161"), (Ids{0xEA, 0xB0, 0x80}));               // two Hangul jamo, one syllable
  EXPECT_EQ(tokenizer->encode("q\u0307\u0323"), (Ids{0x71, 0xCC, 0xA3, 0xCC, 0x87}));  // marks in canonical order
  EXPECT_EQ(tokenizer->encode("\uFB01"), (Ids{0xEF, 0xAC, 0x81}));                     // a ligature is no composition
  EXPECT_EQ(tokenizer->encode(std::string("a\0th", 4)), (Ids{0x61, 0, 256}));
  EXPECT_EQ(tokenizer->encode("e\xFF\u0301"), (Ids{0x65, 0xFF, 0xCC, 0x81}));  // not across bytes that are no text
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  write("tokenizer.json", file);
  EXPECT_EQ(load()->encode("e\u0301"), (Ids{0xC3, 0xA9}));
}

TEST_F(HfFolder, NormalizersThatBlowTextUpAreStopped) {
  json file = byte_level();
  const json twenty = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(20, 'a')}};
  json steps = json::array();
  for (int i = 0; i < 20; ++i) steps.push_back(twenty);
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  write("tokenizer.json", file);
  const auto tokenizer = load();
  EXPECT_THROW(tokenizer->encode("a"), Error);
  EXPECT_EQ(tokenizer->encode("th"), (Ids{256}));
}

TEST_F(HfFolder, PrependedTextCountsAsGrowth) {
  json file = byte_level();
  json steps = json::array();
  for (int i = 0; i < 20; ++i) steps.push_back({{"type", "Prepend"}, {"prepend", std::string(400, 'a')}});
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  write("tokenizer.json", file);
  EXPECT_THROW(load()->encode("a"), Error);
  file["normalizer"] = {{"type", "Prepend"}, {"prepend", "a"}};
  write("tokenizer.json", file);
  EXPECT_EQ(load()->encode("th"), (Ids{'a', 256}));
}

TEST_F(HfFolder, StagesAndAddedTokensHaveLimits) {
  json file = byte_level();
  const json split = {{"type", "Split"}, {"pattern", {{"String", "q"}}}, {"behavior", "Isolated"}};
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::array()}};
  for (int i = 0; i < 65; ++i) file["pre_tokenizer"]["pretokenizers"].push_back(split);
  expect_refusal(file, "pre_tokenizer: more, expected at most 64 stages");
  file = byte_level();
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  for (int i = 0; i < 65; ++i) file["normalizer"]["normalizers"].push_back({{"type", "NFC"}});
  expect_refusal(file, "normalizer: more, expected at most 64 stages");
  file = byte_level();
  file["added_tokens"].push_back(added(260, std::string(257, 'x').c_str(), false));
  expect_refusal(file, "token 260 with 257");
  file["added_tokens"].back()["content"] = std::string(256, 'x');
  write("tokenizer.json", file);
  EXPECT_EQ(load()->encode(std::string(256, 'x')), (Ids{260}));
}

TEST_F(HfFolder, WhatIsSaidTwiceIsRefused) {
  const std::string file = byte_level().dump();
  write_text("tokenizer.json", file.substr(0, file.size() - 1) + R"(,"model":{"type":"BPE","vocab":{},"merges":[]}})");
  EXPECT_NE(refusal().find("'model' twice"), std::string::npos) << refusal();
  std::string twice = file;
  twice.replace(twice.find("\"th\":"), 5, R"("th":7,"th":)");
  write_text("tokenizer.json", twice);
  EXPECT_NE(refusal().find("'th' twice"), std::string::npos) << refusal();
  json tokenizer = byte_level();
  tokenizer["added_tokens"].push_back(added(259, "<|eom|>", true));
  expect_refusal(tokenizer, "one token with id 259");
  // The same token again is one token; and Python's reading of the files beside tokenizer.json is that the last counts.
  tokenizer["added_tokens"].back() = added(259, "<|eot|>", true);
  write("tokenizer.json", tokenizer);
  write_text("tokenizer_config.json", R"({"chat_template": "one", "chat_template": "two"})");
  EXPECT_EQ(load()->chat_template(), "two");
}

TEST_F(HfFolder, WhatIsNeitherTrueNorFalseIsRefused) {
  for (const json& value : {json(1), json("yes"), json::array(), json(0.0)}) {
    for (const char* name : {"byte_fallback", "ignore_merges", "fuse_unk"}) {
      json file = byte_level();
      file["model"][name] = value;
      expect_refusal(file, name);
    }
    json file = byte_level();
    file["added_tokens"][0]["special"] = value;
    expect_refusal(file, "special");
    file = byte_level();
    file["pre_tokenizer"]["use_regex"] = value;
    expect_refusal(file, "use_regex");
  }
  json file = byte_level();
  file["model"]["byte_fallback"] = nullptr;
  write("tokenizer.json", file);
  EXPECT_EQ(load()->encode("th"), (Ids{256}));
}

TEST_F(HfFolder, IdsThatAreNoneAreQuotedInShort) {
  json file = byte_level();
  file["added_tokens"] = {added(0, "x", true)};
  file["added_tokens"][0]["id"] = std::vector<int>(10000, 7);
  expect_refusal(file, "added_tokens");
  EXPECT_LT(refusal().size(), 500U);
}

// A FIFO, a folder, a link to itself: said at once, not waited for, and never taken for an empty file.
TEST_F(HfFolder, FilesThatAreNoneAreNamed) {
  write("tokenizer.json", byte_level());
  for (const char* name : {"chat_template.jinja", "tokenizer_config.json", "generation_config.json"}) {
    const std::filesystem::path path = folder_.path() / name;
    std::filesystem::create_symlink(path, path);
    EXPECT_NE(refusal().find(name), std::string::npos) << refusal();
    EXPECT_EQ(refusal().find("filesystem error"), std::string::npos) << refusal();
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    EXPECT_NE(refusal().find(std::string(name) + ": a folder"), std::string::npos) << refusal();
    std::filesystem::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_NE(refusal().find(std::string(name) + ": a pipe"), std::string::npos) << refusal();
    std::filesystem::remove(path);
    EXPECT_EQ(load()->chat_template(), std::nullopt);
  }
}

TEST_F(HfFolder, ChatTemplatesHaveOneLimitWhereverTheyStand) {
  const std::string most(size_t{1} << 20, ' ');
  write("tokenizer.json", byte_level());
  write_text("chat_template.jinja", most);
  EXPECT_EQ(load()->chat_template(), most);
  write_text("chat_template.jinja", most + " ");
  EXPECT_NE(refusal().find("at most 1048576 bytes"), std::string::npos) << refusal();
  std::filesystem::remove(folder_.path() / "chat_template.jinja");
  write("tokenizer_config.json", {{"chat_template", most + " "}});
  EXPECT_NE(refusal().find("chat_template: 1048577 bytes"), std::string::npos) << refusal();
  write("tokenizer_config.json", {{"chat_template", {{{"name", "default"}, {"template", most + " "}}}}});
  EXPECT_NE(refusal().find("chat_template: 1048577 bytes"), std::string::npos) << refusal();
  json facts = testing::byte_level_facts({{"th", TokenKind::normal}}, {"t h"});
  facts["tokenizer.chat_template"] = most;
  EXPECT_EQ(testing::gguf_tokenizer(facts)->chat_template(), most);
  facts["tokenizer.chat_template"] = most + " ";
  EXPECT_THROW(testing::gguf_tokenizer(facts), Error);
}

// A split rule that backtracks without end is stopped, not waited for.
TEST_F(HfFolder, RulesThatNeverEndAreStopped) {
  json file = byte_level();
  file["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Split"}, {"pattern", {{"Regex", "(a+a+)+[bc]"}}}, {"behavior", "Isolated"}},
                             {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  write("tokenizer.json", file);
  EXPECT_THROW(load()->encode(std::string(5000, 'a')), Error);
  EXPECT_EQ(load()->encode("aab").size(), 3U);
}

}  // namespace
}  // namespace slipring
