// Published weights, where $SLIPRING_MODELS has them: against float32 arithmetic on the dequantised weights, and
// against themselves.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <slipring/generate.h>
#include <slipring/perplexity.h>
#include <slipring/sampling.h>

#include "fixtures.h"

namespace slipring::testing {
namespace {

namespace fs = std::filesystem;

/// The model, or null after skipping.
std::shared_ptr<const Model> published(const char* file) {
  const fs::path path = published_models() / file;
  if (published_models().empty() || !fs::exists(path)) return nullptr;
  return Model::load(path);
}

struct Reference {
  std::vector<TokenId> ids;
  std::vector<double> nll;
  std::vector<int64_t> positions;
  std::vector<std::vector<TokenId>> top_ids;
  std::vector<std::vector<double>> top_logits;
};

Reference gemma_reference() {
  std::ifstream in(root_with({"real/gemma3-270m.json"}) / "real/gemma3-270m.json");
  const auto json = nlohmann::json::parse(in);
  return {json["ids"], json["nll"], json["positions"], json["top_ids"], json["top_logits"]};
}

constexpr const char* kGemma = "gemma-3-270m-q4_k_m.gguf";
constexpr const char* kSmolLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf";

TEST(Published, Gemma3PredictsThePassageAsTheDequantisedWeightsDo) {
  const auto model = published(kGemma);
  if (!model) GTEST_SKIP() << kGemma << " is not under $SLIPRING_MODELS";
  const Reference expected = gemma_reference();
  for (const DType kv : {DType::F16, DType::F32}) {
    Session session(model, {.kv_dtype = kv, .context = 0, .chunk = 512, .threads = 0});
    const auto result = perplexity(session, std::span(expected.ids).subspan(1));
    ASSERT_EQ(result.nll.size(), expected.nll.size());
    double mean = 0;
    double worst = 0;
    for (size_t i = 0; i < result.nll.size(); ++i) {
      const double difference = result.nll[i] - expected.nll[i];
      mean += difference / static_cast<double>(result.nll.size());
      worst = std::max(worst, std::abs(difference));
    }
    EXPECT_LT(std::abs(mean), 0.005) << to_string(kv);
    EXPECT_LT(worst, 0.6) << to_string(kv);
  }
}

TEST(Published, Gemma3GivesTheSameBitsForChunksOf1And512) {
  const auto model = published(kGemma);
  if (!model) GTEST_SKIP() << kGemma << " is not under $SLIPRING_MODELS";
  const Reference expected = gemma_reference();
  // Past the window of 512, so that the rings have wrapped; every 16th row is kept, they are a megabyte each.
  std::vector<std::vector<float>> rows[2];
  for (const int which : {0, 1}) {
    Session session(model, {.kv_dtype = DType::F16, .context = 0, .chunk = which == 0 ? 512 : 1, .threads = which + 1});
    session.score(expected.ids, [&](int64_t i, std::span<const float> row) {
      if (i % 16 == 0 || i > 600) rows[which].emplace_back(row.begin(), row.end());
    });
  }
  EXPECT_TRUE(rows[0] == rows[1]);
}

TEST(Published, Gemma3RanksTheLikeliestTokensAsTheReference) {
  const auto model = published(kGemma);
  if (!model) GTEST_SKIP() << kGemma << " is not under $SLIPRING_MODELS";
  const Reference expected = gemma_reference();
  std::vector<std::vector<TokenLogprob>> ours(expected.ids.size());
  Session session(model, {.kv_dtype = DType::F32, .context = 0, .chunk = 128, .threads = 0});
  session.score(expected.ids, [&](int64_t i, std::span<const float> row) {
    if (std::find(expected.positions.begin(), expected.positions.end(), i) != expected.positions.end()) {
      ours[static_cast<size_t>(i)] = top_logprobs(row, 20);
    }
  });
  for (size_t i = 0; i < expected.positions.size(); ++i) {
    const auto& top = ours[static_cast<size_t>(expected.positions[i])];
    // The leader, unless the reference's first two are nearly level.
    if (expected.top_logits[i][0] - expected.top_logits[i][1] > 1.0) {
      EXPECT_EQ(top[0].id, expected.top_ids[i][0]) << "position " << expected.positions[i];
    }
    int found = 0;
    for (const TokenId id : expected.top_ids[i]) {
      found += std::any_of(top.begin(), top.end(), [id](const TokenLogprob& entry) { return entry.id == id; }) ? 1 : 0;
    }
    EXPECT_GE(found, 14) << "position " << expected.positions[i];
  }
}

TEST(Published, SmolLM2Answers) {
  const auto model = published(kSmolLM2);
  if (!model) GTEST_SKIP() << kSmolLM2 << " is not under $SLIPRING_MODELS";
  Session session(model, {.kv_dtype = DType::F16, .context = 2048, .chunk = 512, .threads = 0});
  GenerateOptions options;
  options.max_tokens = 24;
  options.sampling.temperature = 0;
  const auto prompt = encode_prompt(
      model->tokenizer(), "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
      ControlTokens::parse);
  const auto result = generate(session, prompt, options);
  EXPECT_NE(result.text.find("Paris"), std::string::npos) << result.text;
  EXPECT_EQ(result.finish, FinishReason::end_of_turn);
}

}  // namespace
}  // namespace slipring::testing
