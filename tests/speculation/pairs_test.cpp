// A drafter that was made for another model is refused when it is loaded, by name.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <slipring/drafts.h>
#include <slipring/error.h>
#include <slipring/session.h>

namespace slipring::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A copy of the drafter's folder that a test may damage.
class Pairs : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("slipring-pairs-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::copy(data_ / "muse-glimmer-assistant", folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  json read(const char* name) const { return json::parse(std::ifstream(folder_ / name)); }
  void write(const char* name, const json& value) const { std::ofstream(folder_ / name) << value; }

  /// The code and the message of loading the pair.
  std::pair<ErrorCode, std::string> refusal(const char* target = "muse-glimmer") const {
    try {
      load_dflash_drafts(folder_, Model::load(data_ / target), make_worker(1));
    } catch (const Error& error) {
      return {error.code(), error.what()};
    }
    return {ErrorCode::internal, "loaded"};
  }
  static bool names(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

  fs::path data_ = fs::path(SLIPRING_SOURCE_DIR) / "tests/data";
  fs::path folder_;
};

TEST_F(Pairs, TheRightPairLoads) {
  EXPECT_EQ(refusal().second, "loaded");
}

TEST_F(Pairs, TwoSwappedTokensAreNamed) {
  json tokenizer = read("tokenizer.json");
  json& vocabulary = tokenizer["model"]["vocab"];
  std::string first;
  std::string second;
  for (const auto& [text, id] : vocabulary.items()) {
    if (id == 70) first = text;
    if (id == 71) second = text;
  }
  ASSERT_FALSE(first.empty() || second.empty());
  std::swap(vocabulary[first], vocabulary[second]);
  write("tokenizer.json", tokenizer);
  const auto [code, text] = refusal();
  EXPECT_EQ(code, ErrorCode::mismatch) << text;
  EXPECT_TRUE(names(text, "token 70")) << text;
}

TEST_F(Pairs, ALargerVocabularyIsRefused) {
  json tokenizer = read("tokenizer.json");
  for (int i = 0; i < 64; ++i) {
    tokenizer["added_tokens"].push_back({{"id", 320 + i},
                                         {"content", "<pad" + std::to_string(i) + ">"},
                                         {"single_word", false},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"normalized", false},
                                         {"special", true}});
  }
  write("tokenizer.json", tokenizer);
  const auto [code, text] = refusal();
  EXPECT_EQ(code, ErrorCode::mismatch) << text;
  EXPECT_TRUE(names(text, "vocabulary")) << text;
}

TEST_F(Pairs, TapsAndMaskBeyondTheTargetAreRefused) {
  json config = read("config.json");
  config["target_layer_ids"] = {0, 2, 8};
  write("config.json", config);
  EXPECT_EQ(refusal().first, ErrorCode::mismatch) << refusal().second;
  EXPECT_TRUE(names(refusal().second, "layer 8")) << refusal().second;
  config["target_layer_ids"] = {0, 2, 5};
  config["mask_token_id"] = 320;
  write("config.json", config);
  EXPECT_EQ(refusal().first, ErrorCode::mismatch) << refusal().second;
  EXPECT_TRUE(names(refusal().second, "mask token")) << refusal().second;
  config["mask_token_id"] = -1;
  write("config.json", config);
  EXPECT_EQ(refusal().first, ErrorCode::bad_file) << refusal().second;
}

TEST_F(Pairs, AnotherWidthIsRefused) {
  const auto [code, text] = refusal("glimmer-tiny");
  EXPECT_EQ(code, ErrorCode::mismatch) << text;
  EXPECT_TRUE(names(text, "hidden size")) << text;
}

TEST_F(Pairs, ATargetIsNoDrafter) {
  folder_ = data_ / "muse-glimmer";
  const auto [code, text] = refusal();
  folder_ = fs::temp_directory_path() / ("slipring-pairs-" + std::to_string(::getpid()));
  EXPECT_EQ(code, ErrorCode::unsupported) << text;
}

TEST_F(Pairs, ACutDrafterIsRefused) {
  const auto weights = folder_ / "model.safetensors";
  fs::resize_file(weights, fs::file_size(weights) - 1);
  EXPECT_EQ(refusal().first, ErrorCode::bad_file) << refusal().second;
  fs::resize_file(weights, 4);
  EXPECT_EQ(refusal().first, ErrorCode::bad_file) << refusal().second;
}

TEST_F(Pairs, DraftsJoinAnEmptySessionOnly) {
  Session session(Model::load(data_ / "muse-glimmer"));
  session.decode(3);
  EXPECT_THROW(session.attach_drafts(make_ngram_drafts()), Error);
  EXPECT_THROW(make_ngram_drafts(0), Error);
  EXPECT_THROW(make_ngram_drafts(17), Error);
}

}  // namespace
}  // namespace slipring::testing
