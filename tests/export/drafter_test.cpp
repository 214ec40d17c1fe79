// The drafter's two programs share one set of rings and give the bits of the drafter's own code.
#include <gtest/gtest.h>

#include <slipring/error.h>

#include "fixtures.h"
#include "program/interpreter.h"

namespace slipring {
namespace {

std::vector<float> noise(int64_t count, uint32_t seed) {
  std::vector<float> values;
  for (const int32_t id : test::tokens(count, 2000, seed)) values.push_back(static_cast<float>(id - 1000) / 500.0F);
  return values;
}

class DrafterPrograms : public testing::TestWithParam<DType> {};

TEST_P(DrafterPrograms, EqualEagerPastThreeWraps) {
  const DType kv = GetParam();
  const auto drafter = load_drafter(*ModelFiles::open(test::data("muse-glimmer-assistant")), test::pool());
  const auto target = test::decoder("muse-glimmer");
  const DrafterSpec& spec = drafter->spec();
  Interpreter inject(std::make_shared<const Program>(trace_inject("inject", drafter, kv)), test::pool());
  Interpreter draft(std::make_shared<const Program>(trace_draft("draft", drafter, target, kv)), test::pool());
  const auto caches = make_caches(inject.program());
  const Sequence eager = make_sequence(spec.layers, kv);
  NativeOps ops(test::pool());
  const auto begin = [&](const std::vector<float>& x, int64_t cols) {
    return StepSequence{.caches = eager.caches,
                        .offset = eager.caches[0]->offset(),
                        .query_len = static_cast<int64_t>(x.size()) / cols,
                        .logits = LogitRows::all};
  };
  const int64_t wide = static_cast<int64_t>(spec.taps.size()) * spec.hidden_size;
  int64_t done = 0;
  uint32_t round = 0;
  for (const int64_t accepted : {5, 8, 1, 2, 16, 7, 9, 3, 13}) {
    const std::vector<int32_t> block = test::tokens(spec.block_size, target->spec().vocab_size, ++round);
    std::vector<float> rows(block.size() * static_cast<size_t>(spec.hidden_size));
    for (size_t i = 0; i < block.size(); ++i) {
      target->embedding_table().matrix.dequantise_row(block[i],
                                                      rows.data() + i * static_cast<size_t>(spec.hidden_size));
    }
    if (done > 0) {
      const StepSequence part = begin(rows, spec.hidden_size);
      ops.begin({.mode = StepMode::prefill,
                 .sequences = {&part, 1},
                 .tokens = {},
                 .embeddings = rows.data(),
                 .embedding_cols = spec.hidden_size,
                 .taps = {}});
      const Value hidden = drafter->draft(ops);
      const std::vector<float> expected(ops.data(hidden).begin(), ops.data(hidden).end());
      const Value rated = target->logits(ops, hidden);
      const std::vector<float> logits(ops.data(rated).begin(), ops.data(rated).end());
      const auto before = test::cache_bytes(caches);
      const ProgramResults got = draft.run(caches, {.tokens = block, .embeddings = {}});
      ASSERT_EQ(got.at("hidden"), expected) << "at " << done;
      ASSERT_EQ(got.at("logits"), logits) << "at " << done;
      ASSERT_EQ(test::cache_bytes(caches), before);
    }
    ops.end();
    const int64_t count = std::min(accepted, eager.caches[0]->room_before_wrap());
    const std::vector<float> taps = noise(count * wide, 100 + round);
    const StepSequence part = begin(taps, wide);
    ops.begin({.mode = StepMode::prefill,
               .sequences = {&part, 1},
               .tokens = {},
               .embeddings = taps.data(),
               .embedding_cols = wide,
               .taps = {}});
    drafter->inject(ops);
    ops.commit(0, count);
    ops.end();
    inject.run(caches, {.tokens = {}, .embeddings = taps});
    ASSERT_EQ(test::cache_bytes(caches), test::cache_bytes(eager.caches));
    done += count;
  }
  EXPECT_GT(done, 3 * inject.program().states[0].capacity);
}

INSTANTIATE_TEST_SUITE_P(Precisions, DrafterPrograms, testing::Values(DType::F32, DType::F16),
                         [](const auto& instance) { return std::string(to_string(instance.param)); });

}  // namespace
}  // namespace slipring
