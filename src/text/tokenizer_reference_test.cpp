// Parity: ids equal those that the reference tokenizers gave for the same text and files.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>

#include <slipring/tokenizer.h>

#include "formats/model_files.h"

namespace slipring {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path data = fs::path(SLIPRING_SOURCE_DIR) / "tests/data";

json read(const fs::path& path) {
  std::ifstream file(path);
  return json::parse(file);
}

// Every case of the file; "special" tells whether control tokens are parsed (the small fixture has only such cases).
void expect_cases(const Tokenizer& tokenizer, const fs::path& cases) {
  size_t count = 0;
  for (const json& entry : read(cases)) {
    const auto text = entry["text"].get<std::string>();
    const bool parse = entry.value("special", true);
    const auto ids = tokenizer.encode(text, parse ? ControlTokens::parse : ControlTokens::as_text);
    EXPECT_EQ(ids, entry["ids"].get<std::vector<TokenId>>())
        << text << (parse ? " with" : " without") << " control tokens";
    EXPECT_EQ(tokenizer.decode(ids, true), text);
    ++count;
  }
  EXPECT_GT(count, 10U);
}

fs::path published(const char* name) {
  const char* folder = std::getenv("SLIPRING_MODELS");
  return folder == nullptr ? fs::path() : fs::path(folder) / name;
}

TEST(TokenizerReference, MuseGlimmerFromTokenizerJson) {
  const auto files = ModelFiles::open(data / "muse-glimmer");
  expect_cases(*Tokenizer::load(*files), data / "muse-glimmer/tokenizer_cases.json");
}

TEST(TokenizerReference, MuseGlimmerFromGguf) {
  const auto files = ModelFiles::open(data / "gguf/muse-glimmer-f32.gguf");
  expect_cases(*Tokenizer::load(*files), data / "muse-glimmer/tokenizer_cases.json");
}

// Not against a reference: a long text of the embedded model's own kind comes back, and in whole words.
TEST(TokenizerReference, GlimmerTinyRoundTrip) {
  std::ifstream file(data / "glimmer-tiny/heldout.txt", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  ASSERT_GT(text.size(), 10'000U);
  const auto files = ModelFiles::open(fs::path(SLIPRING_SOURCE_DIR) / "models/glimmer-tiny/glimmer-tiny-q8_0.gguf");
  const auto tokenizer = Tokenizer::load(*files);
  const auto ids = tokenizer->encode(text);
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_LT(ids.size() * 3, text.size());
}

TEST(TokenizerReference, Gemma3) {
  const fs::path model = published("gemma-3-270m-q4_k_m.gguf");
  if (!fs::exists(model)) GTEST_SKIP() << "gemma-3-270m-q4_k_m.gguf is not under $SLIPRING_MODELS";
  expect_cases(*Tokenizer::load(*ModelFiles::open(model)), data / "real/gemma3-tokenizer_cases.json");
}

TEST(TokenizerReference, SmolLm2) {
  const fs::path model = published("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!fs::exists(model)) GTEST_SKIP() << "SmolLM2-135M-Instruct.Q4_1.gguf is not under $SLIPRING_MODELS";
  expect_cases(*Tokenizer::load(*ModelFiles::open(model)), data / "real/smollm2-tokenizer_cases.json");
}

}  // namespace
}  // namespace slipring
