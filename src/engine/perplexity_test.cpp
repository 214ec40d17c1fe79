// Each token scored once, whatever the context, the overlap and the chunk.
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <limits>

#include <slipring/error.h>
#include <slipring/perplexity.h>
#include <slipring/sampling.h>

namespace slipring {
namespace {

// Random weights, window 16, a vocabulary that adds no BOS.
std::shared_ptr<const Model> small_model() {
  static const auto model =
      Model::load(std::filesystem::path(SLIPRING_SOURCE_DIR) / "tests/data/gguf/muse-glimmer-q8_0.gguf");
  return model;
}

std::vector<TokenId> tokens(size_t count) {
  std::vector<TokenId> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<TokenId>(uniform_draw(3, i) * 300) + 3;
  return ids;
}

PerplexityResult score(std::span<const TokenId> ids, int64_t chunk, const PerplexityOptions& options) {
  Session session(small_model(), {.kv_dtype = DType::F32, .context = 0, .chunk = chunk, .threads = 1});
  return perplexity(session, ids, options);
}

TEST(Perplexity, IsTheExponentOfTheMean) {
  PerplexityResult result;
  result.nll = {1, 2, 3};
  EXPECT_NEAR(result.perplexity(), 7.389, 1e-3);
}

TEST(Perplexity, IsTheSameForEveryChunk) {
  const auto ids = tokens(300);
  const auto expected = score(ids, 512, {.context = 64, .overlap = 0});
  for (const int64_t chunk : {1, 7, 64})
    EXPECT_EQ(score(ids, chunk, {.context = 64, .overlap = 0}).nll, expected.nll) << chunk;
}

TEST(Perplexity, ScoresEveryTokenOnceWhateverTheOverlap) {
  const auto ids = tokens(200);
  for (const int64_t overlap : {0, 1, 13, 50}) {
    const auto result = score(ids, 64, {.context = 64, .overlap = overlap});
    EXPECT_EQ(result.nll.size(), small_model()->tokenizer().add_bos() ? 200U : 199U) << overlap;
  }
}

TEST(Perplexity, OneWindowIsTheUncachedForward) {
  const auto ids = tokens(60);
  const auto result = score(ids, 16, {.context = 128, .overlap = 0});
  EXPECT_EQ(result.windows, 1);
  Session session(small_model(), {.kv_dtype = DType::F32, .context = 0, .chunk = 512, .threads = 2});
  std::vector<TokenId> fed = ids;
  size_t first = 1;
  if (small_model()->tokenizer().add_bos()) {
    fed.insert(fed.begin(), *small_model()->tokenizer().bos());
    first = 0;
  }
  std::vector<float> nll;
  session.score(fed, [&](int64_t i, std::span<const float> row) {
    if (static_cast<size_t>(i) + 1 < fed.size()) nll.push_back(-logprob(row, fed[static_cast<size_t>(i) + 1]));
  });
  EXPECT_EQ(nll.size(), ids.size() - first);
  EXPECT_EQ(result.nll, nll);
}

TEST(Perplexity, ShortTextsAndOddOptions) {
  const size_t least = small_model()->tokenizer().add_bos() ? 1 : 2;
  EXPECT_THROW(score(tokens(least - 1), 16, {}), Error);
  EXPECT_EQ(score(tokens(least), 16, {}).nll.size(), 1U);
  // A last window of one token.
  EXPECT_NO_THROW(score(tokens(65), 16, {.context = 64, .overlap = 0}));
  EXPECT_THROW(score(tokens(8), 16, {.context = 1, .overlap = 0}), Error);
  EXPECT_THROW(score(tokens(8), 16, {.context = 64, .overlap = 64}), Error);
  EXPECT_THROW(score(tokens(8), 16, {.context = std::numeric_limits<int64_t>::max(), .overlap = 0}), Error);
}

}  // namespace
}  // namespace slipring
