// Whole models against logits that other implementations computed in float64 without any cache, and against themselves.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include <slipring/error.h>
#include <slipring/sampling.h>
#include <slipring/session.h>

#include "fixtures.h"
#include "formats/model_files.h"
#include "models/decoder.h"

namespace slipring::testing {
namespace {

namespace fs = std::filesystem;

struct Run {
  int64_t chunk = 512;
  int threads = 1;
  DType kv = DType::F32;
};

/// Logits of every token, [T, vocab].
std::vector<float> all_logits(const std::shared_ptr<const Model>& model, std::span<const TokenId> ids, const Run& run) {
  Session session(model, {.kv_dtype = run.kv, .context = 0, .chunk = run.chunk, .threads = run.threads});
  std::vector<float> logits;
  session.score(ids, [&](int64_t, std::span<const float> row) { logits.insert(logits.end(), row.begin(), row.end()); });
  return logits;
}

/// The same, token by token through the write-first path.
std::vector<float> decoded_logits(const std::shared_ptr<const Model>& model, std::span<const TokenId> ids,
                                  const Run& run) {
  Session session(model, {.kv_dtype = run.kv, .context = 0, .chunk = run.chunk, .threads = run.threads});
  std::vector<float> logits;
  for (const TokenId id : ids) {
    const auto row = session.decode(id);
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

/// Largest |difference| between our rows and the case's, which may hold some positions only.
double worst_difference(const std::vector<float>& ours, const TensorFile& expected, int64_t vocab) {
  const Tensor& logits = expected["logits"];
  double worst = 0.0;
  for (int64_t row = 0; row < logits.shape()[0]; ++row) {
    const int64_t position = expected.has("positions") ? expected["positions"].data<int32_t>()[row] : row;
    for (int64_t i = 0; i < vocab; ++i) {
      const double difference = std::abs(ours[static_cast<size_t>(position * vocab + i)] -
                                         static_cast<double>(logits.data<float>()[row * vocab + i]));
      worst = std::max(worst, std::isnan(difference) ? 1e30 : difference);
    }
  }
  return worst;
}

TokenId likeliest(std::span<const float> row) {
  return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::string name_of(const ::testing::TestParamInfo<fs::path>& parameter) {
  return (parameter.param.extension() == ".gguf" ? "gguf_" : "") + testing::test_name(parameter.param);
}

/// Skips, by name, a family that slipring does not run.
std::shared_ptr<const Model> load_known(const fs::path& path) {
  const auto known = known_architectures();
  const auto files = ModelFiles::open(path);
  if (std::find(known.begin(), known.end(), files->architecture()) == known.end()) return nullptr;
  return Model::load(path);
}

class Folder : public ::testing::TestWithParam<fs::path> {
 protected:
  void SetUp() override {
    model_ = load_known(GetParam());
    if (!model_) GTEST_SKIP() << GetParam() << ": not a family that slipring runs";
    expected_ = std::make_unique<TensorFile>(GetParam() / "case.safetensors");
    ids_ = expected_->ids("input_ids");
  }
  std::shared_ptr<const Model> model_;
  std::unique_ptr<TensorFile> expected_;
  std::vector<TokenId> ids_;
};

TEST(Fixtures, AreThere) {
  ASSERT_FALSE(target_folders().empty()) << "no model folder under " << fixture_root();
}

TEST_P(Folder, LogitsAreTheReference) {
  const double worst = worst_difference(all_logits(model_, ids_, {.chunk = 33}), *expected_, model_->spec().vocab_size);
  RecordProperty("worst_difference", std::to_string(worst));
  EXPECT_LT(worst, 1e-4);
}

TEST_P(Folder, GreedyContinuationIsTheReference) {
  const auto greedy = expected_->ids("greedy");
  const auto prompt = expected_->has("greedy_prompt") ? expected_->ids("greedy_prompt") : ids_;
  Session session(model_, {.kv_dtype = DType::F32, .context = 0, .chunk = 7, .threads = 2});
  std::span<const float> row = session.prefill(prompt);
  for (size_t i = 0; i < greedy.size(); ++i) {
    const TokenId token = likeliest(row);
    ASSERT_EQ(token, greedy[i]) << "token " << i;
    row = session.decode(token);
  }
}

TEST_P(Folder, NegativeLogLikelihoodIsTheReference) {
  if (!expected_->has("nll")) GTEST_SKIP() << "the case has none";
  const Tensor& nll = (*expected_)["nll"];
  const auto logits = all_logits(model_, ids_, {.chunk = 64, .threads = 2});
  const auto vocab = static_cast<size_t>(model_->spec().vocab_size);
  for (size_t i = 0; i + 1 < ids_.size(); ++i) {
    ASSERT_NEAR(-logprob({logits.data() + i * vocab, vocab}, ids_[i + 1]), nll.data<float>()[i], 2e-4) << i;
  }
}

TEST_P(Folder, SameBitsForEveryChunkThreadCountAndCacheType) {
  // Enough tokens to wrap the rings several times, few enough to be quick with a large vocabulary.
  int64_t window = 1;
  for (const LayerSpec& layer : model_->spec().layers) window = std::max(window, layer.window);
  ids_.resize(std::min(ids_.size(), static_cast<size_t>(4 * window + 17)));
  for (const DType kv : {DType::F32, DType::F16, DType::BF16}) {
    const auto whole = all_logits(model_, ids_, {.chunk = 4096, .threads = 1, .kv = kv});
    for (const int64_t chunk : {1, 5, 7, 16, 33}) {
      EXPECT_TRUE(same_bits(all_logits(model_, ids_, {.chunk = chunk, .threads = 2, .kv = kv}), whole))
          << to_string(kv) << " chunk " << chunk;
    }
    EXPECT_TRUE(same_bits(all_logits(model_, ids_, {.chunk = 16, .threads = 3, .kv = kv}), whole)) << to_string(kv);
    EXPECT_TRUE(same_bits(decoded_logits(model_, ids_, {.threads = 2, .kv = kv}), whole)) << to_string(kv) << " decode";
  }
}

TEST_P(Folder, ALaterTokenMovesNoEarlierLogit) {
  auto changed = ids_;
  changed.back() = changed.back() == 5 ? 6 : 5;
  const auto vocab = static_cast<size_t>(model_->spec().vocab_size);
  auto a = all_logits(model_, ids_, {.chunk = 64, .threads = 2});
  auto b = all_logits(model_, changed, {.chunk = 64, .threads = 2});
  EXPECT_FALSE(same_bits(a, b));
  a.resize(a.size() - vocab);
  b.resize(b.size() - vocab);
  EXPECT_TRUE(same_bits(a, b));
}

TEST_P(Folder, KeepsExactlyTheWindowInEverySlidingLayer) {
  Session session(model_, {.kv_dtype = DType::F16, .context = 0, .chunk = 16, .threads = 1});
  session.prefill(ids_);
  int64_t sliding = 0;
  int64_t full = 0;
  for (const LayerSpec& layer : model_->spec().layers) {
    const int64_t a_position = 2 * 2 * int64_t{layer.n_kv_heads} * layer.head_dim;
    if (layer.kind == LayerKind::sliding) {
      sliding += layer.window * a_position;
    } else {
      full += a_position;
    }
  }
  const int64_t pages = (session.length() + 255) / 256 * 256;
  EXPECT_EQ(session.kv_bytes_held(), sliding + full * pages);
}

INSTANTIATE_TEST_SUITE_P(Parity, Folder, ::testing::ValuesIn(target_folders()), name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Folder);

// The same weights as GGUF, in float32 and rounded. The tolerance of rounded weights is what the rounding itself does
// to the logits of this random model; the float32 file must match the reference like the folder.
struct GgufCase {
  const char* file;
  const char* folder;  ///< whose reference it has
  double tolerance;
};

class Gguf : public ::testing::TestWithParam<GgufCase> {};

TEST_P(Gguf, LogitsAreTheReferenceAndTheBitsDoNotDependOnTheChunk) {
  const auto root = root_with({fs::path("gguf") / GetParam().file, GetParam().folder});
  const auto model = Model::load(root / "gguf" / GetParam().file);
  const TensorFile expected(root / GetParam().folder / "case.safetensors");
  const auto ids = expected.ids("input_ids");
  const auto whole = all_logits(model, ids, {.chunk = 4096, .threads = 2});
  const double worst = worst_difference(whole, expected, model->spec().vocab_size);
  RecordProperty("worst_difference", std::to_string(worst));
  EXPECT_LT(worst, GetParam().tolerance);
  for (const int64_t chunk : {1, 5, 7, 16, 33}) {
    for (const int threads : {1, 2, 3}) {
      EXPECT_TRUE(same_bits(all_logits(model, ids, {.chunk = chunk, .threads = threads}), whole))
          << chunk << " " << threads;
    }
  }
  EXPECT_TRUE(same_bits(decoded_logits(model, ids, {.threads = 2}), whole));
}

INSTANTIATE_TEST_SUITE_P(
    Parity, Gguf,
    ::testing::Values(GgufCase{"muse-glimmer-f32.gguf", "muse-glimmer", 1e-4},
                      GgufCase{"muse-glimmer-f16.gguf", "muse-glimmer", 0.1},
                      GgufCase{"muse-glimmer-q8_0.gguf", "muse-glimmer", 2.5},
                      GgufCase{"gemma2-f32.gguf", "gemma2", 1e-4}, GgufCase{"gpt-oss-f16.gguf", "gpt-oss", 0.02},
                      GgufCase{"gemma3-f32.gguf", "gemma3", 1e-4}, GgufCase{"mistral-f32.gguf", "mistral", 1e-4},
                      GgufCase{"phi3-f32.gguf", "phi3", 1e-4}, GgufCase{"olmo3-f32.gguf", "olmo3", 1e-4},
                      GgufCase{"cohere2-f32.gguf", "cohere2", 1e-4}),
    [](const ::testing::TestParamInfo<GgufCase>& parameter) { return testing::test_name(parameter.param.file); });

}  // namespace
}  // namespace slipring::testing
