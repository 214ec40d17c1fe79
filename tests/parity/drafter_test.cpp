// The DFlash drafter against a reference computed in float64: its context comes in by the target's tapped layers, its
// proposals go out through the target's head. The rounds' contexts end before, at and past the drafter's window of 16.
//
// The reference of case.safetensors ran without a cache, and then leaves the window out; that of
// window_case.safetensors ran as in generation, with the window. Both are met: the first by the same weights with a
// window beyond every context.
#include "models/drafter.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <unistd.h>

#include <slipring/session.h>

#include "engine/sequence.h"
#include "engine/step.h"
#include "fixtures.h"
#include "formats/model_files.h"

namespace slipring::testing {
namespace {

namespace fs = std::filesystem;

double worst_difference(std::span<const float> ours, const float* expected) {
  double worst = 0.0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double difference = std::abs(ours[i] - static_cast<double>(expected[i]));
    worst = std::max(worst, std::isnan(difference) ? 1e30 : difference);
  }
  return worst;
}

struct DrafterCase {
  const char* name;
  const char* path;
  bool wide;  ///< with a window beyond every context
};

/// A copy of the drafter's folder whose config says another window.
fs::path with_window(const fs::path& folder, int window) {
  const fs::path copy = fs::temp_directory_path() / ("slipring-drafter-" + std::to_string(::getpid()));
  fs::remove_all(copy);
  fs::copy(folder, copy);
  std::stringstream config;
  config << std::ifstream(folder / "config.json").rdbuf();
  std::string text = config.str();
  const std::string own = "\"sliding_window\": 16";
  const size_t at = text.find(own);
  if (at == std::string::npos) throw std::runtime_error("the drafter's config has no window of 16");
  text.replace(at, own.size(), "\"sliding_window\": " + std::to_string(window));
  std::ofstream(copy / "config.json") << text;
  return copy;
}

class DrafterParity : public ::testing::TestWithParam<DrafterCase> {
 protected:
  void SetUp() override {
    const fs::path root =
        root_with({GetParam().path, "muse-glimmer", "muse-glimmer-assistant/window_case.safetensors"});
    fs::path path = root / GetParam().path;
    if (!fs::exists(path)) GTEST_SKIP() << path << " is not there";
    const bool wide = GetParam().wide;
    if (wide) path = with_window(path, 4096);
    worker_ = std::make_shared<Worker>(2);
    drafter_ = load_drafter(*ModelFiles::open(path), worker_->pool);
    if (wide) fs::remove_all(path);
    target_ = Model::load(root / "muse-glimmer");
    expected_ = std::make_unique<TensorFile>(root / "muse-glimmer-assistant/case.safetensors");
    hidden_ = std::make_unique<TensorFile>(root / "muse-glimmer-assistant" /
                                           (wide ? "case.safetensors" : "window_case.safetensors"));
  }

  int64_t tap_width() const {
    return drafter_->spec().hidden_size * static_cast<int64_t>(drafter_->spec().taps.size());
  }

  /// Injects taps first ... first + count - 1 of the case into the rings.
  void inject(Sequence& context, int64_t first, int64_t count) {
    const StepSequence part{.caches = context.caches, .offset = first, .query_len = count, .logits = LogitRows::none};
    worker_->ops.begin({.mode = StepMode::prefill,
                        .sequences = {&part, 1},
                        .tokens = {},
                        .embeddings = (*expected_)["taps"].data<float>() + first * tap_width(),
                        .embedding_cols = tap_width(),
                        .taps = {}});
    drafter_->inject(worker_->ops);
    worker_->ops.commit(0, count);
    worker_->ops.end();
  }

  /// Proposals of a round: the case's own, or what the target's head makes of the reference's hidden states.
  std::vector<TokenId> expected_drafts(const std::string& round, int64_t rows) {
    if (GetParam().wide) return expected_->ids(round + "draft_ids");
    const Tensor& hidden = (*hidden_)[round + "hidden"];
    Sequence none = make_sequence(drafter_->spec().layers, DType::F32);
    const StepSequence part{.caches = none.caches, .offset = 0, .query_len = rows, .logits = LogitRows::all};
    Worker other(1);
    other.ops.begin({.mode = StepMode::prefill,
                     .sequences = {&part, 1},
                     .tokens = {},
                     .embeddings = hidden.data<float>(),
                     .embedding_cols = hidden.shape().cols(),
                     .taps = {}});
    std::vector<TokenId> drafts;
    {
      const Value logits = target_->decoder().logits(other.ops, other.ops.input_embeddings());
      const auto scores = other.ops.data(logits);
      const auto vocab = static_cast<size_t>(target_->spec().vocab_size);
      for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
        const auto own = scores.subspan(row * vocab, vocab);
        drafts.push_back(static_cast<TokenId>(std::max_element(own.begin(), own.end()) - own.begin()));
      }
    }
    other.ops.end();
    return drafts;
  }

  std::shared_ptr<Worker> worker_;
  std::shared_ptr<const Drafter> drafter_;
  std::shared_ptr<const Model> target_;
  std::unique_ptr<TensorFile> expected_;
  std::unique_ptr<TensorFile> hidden_;
};

TEST_P(DrafterParity, EveryRoundIsTheReference) {
  const DrafterSpec& spec = drafter_->spec();
  EXPECT_EQ(spec.taps, (std::vector<int>{0, 2, 5}));
  const Linear& table = target_->decoder().embedding_table();
  int rounds = 0;
  bool past_the_window = false;
  for (; expected_->has("round" + std::to_string(rounds) + ".hidden"); ++rounds) {
    const std::string round = "round" + std::to_string(rounds) + ".";
    const int64_t length = expected_->ids(round + "context_length").front();
    past_the_window = past_the_window || length > 16;
    const std::vector<int32_t> block = expected_->ids(round + "block_ids");
    const auto rows = static_cast<int64_t>(block.size());
    std::vector<float> embeddings(static_cast<size_t>(rows * spec.hidden_size));
    for (int64_t row = 0; row < rows; ++row) {
      table.matrix.dequantise_row(block[static_cast<size_t>(row)], embeddings.data() + row * spec.hidden_size);
    }
    // In one piece, in two with a seam inside the window, and row by row: the context's pieces do not matter.
    std::vector<float> first_hidden;
    for (const int64_t piece : {length, (length + 1) / 2, int64_t{1}}) {
      Sequence context = make_sequence(spec.layers, DType::F32);
      for (int64_t at = 0; at < length; at += piece) inject(context, at, std::min(piece, length - at));
      const StepSequence part{.caches = context.caches, .offset = length, .query_len = rows, .logits = LogitRows::all};
      worker_->ops.begin({.mode = StepMode::prefill,
                          .sequences = {&part, 1},
                          .tokens = {},
                          .embeddings = embeddings.data(),
                          .embedding_cols = spec.hidden_size,
                          .taps = {}});
      const Value hidden = drafter_->draft(worker_->ops);
      const auto values = worker_->ops.data(hidden);
      ASSERT_EQ(static_cast<int64_t>(values.size()), rows * spec.hidden_size);
      EXPECT_LT(worst_difference(values, (*hidden_)[round + "hidden"].data<float>()), 1e-4)
          << round << " context " << length << " in pieces of " << piece;
      if (first_hidden.empty()) first_hidden.assign(values.begin(), values.end());
      EXPECT_TRUE(std::equal(values.begin(), values.end(), first_hidden.begin())) << "pieces of " << piece;
      const Value logits = target_->decoder().logits(worker_->ops, hidden);
      const auto scores = worker_->ops.data(logits);
      const auto vocab = static_cast<size_t>(target_->spec().vocab_size);
      const std::vector<TokenId> drafts = expected_drafts(round, rows);
      for (size_t row = 1; row < drafts.size(); ++row) {
        const auto own = scores.subspan(row * vocab, vocab);
        EXPECT_EQ(std::max_element(own.begin(), own.end()) - own.begin(), drafts[row]) << round << " row " << row;
      }
      worker_->ops.end();
    }
  }
  EXPECT_EQ(rounds, 5);
  EXPECT_TRUE(past_the_window);
}

TEST_P(DrafterParity, TheTargetsTapsAreTheReference) {
  const std::vector<TokenId> ids = expected_->ids("input_ids");
  const float* taps = (*expected_)["taps"].data<float>();
  const DrafterSpec& spec = drafter_->spec();
  for (const int64_t chunk : {int64_t{7}, int64_t{16}}) {
    Sequence sequence = make_sequence(target_->spec().layers, DType::F32);
    double worst = 0.0;
    for (int64_t at = 0; at < static_cast<int64_t>(ids.size());) {
      const int64_t count = std::min({chunk, static_cast<int64_t>(ids.size()) - at, 16 - at % 16});
      const StepPart part{.sequence = &sequence,
                          .tokens = std::span(ids).subspan(static_cast<size_t>(at), static_cast<size_t>(count)),
                          .logits = LogitRows::none};
      Step step(target_->decoder(), *worker_, {&part, 1}, spec.taps);
      for (size_t tap = 0; tap < spec.taps.size(); ++tap) {
        const auto hidden = step.tapped(0, tap);
        for (int64_t row = 0; row < count; ++row) {
          const float* want = taps + (at + row) * tap_width() + static_cast<int64_t>(tap) * spec.hidden_size;
          worst = std::max(worst, worst_difference(hidden.subspan(static_cast<size_t>(row * spec.hidden_size),
                                                                  static_cast<size_t>(spec.hidden_size)),
                                                   want));
        }
      }
      step.reserve(0, count);
      step.commit(0, count);
      at += count;
    }
    EXPECT_LT(worst, 1e-4) << "chunk " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Parity, DrafterParity,
                         ::testing::Values(DrafterCase{"safetensors", "muse-glimmer-assistant", false},
                                           DrafterCase{"safetensors_without_window", "muse-glimmer-assistant", true},
                                           DrafterCase{"gguf", "gguf/muse-glimmer-assistant-f32.gguf", false}),
                         [](const ::testing::TestParamInfo<DrafterCase>& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace slipring::testing
