// Faults that users of other engines reported, as far as a ring alone can show them.
#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>

#include <slipring/error.h>
#include <slipring/full_kv_cache.h>
#include <slipring/ring_kv_cache.h>
#include <slipring/step_plan.h>

#include "support.h"

namespace slipring::test {
namespace {

/// Positions that a query sees in a view.
std::vector<int64_t> visible(const KVView& view, int64_t query, int64_t window) {
  std::vector<int64_t> result;
  for (const KVRun& run : view.runs) {
    for (int64_t p = run.first_position; p < run.first_position + run.count; ++p) {
      if (p > query - window && p <= query) result.push_back(p);
    }
  }
  return result;
}

// ollama #15591, #14912: a multi-token step after the wrap dropped keys still in view.
TEST(ReportedCases, MultiTokenStepAfterTheWrapKeepsEveryKeyInView) {
  const Stream stream(9, 41);
  for (const int64_t capacity : {4, 5, 6}) {
    RingKVCache cache(capacity, 4, kLayout);
    while (cache.offset() < 6) decode_step(cache, stream, 4);
    if (capacity == 4) {
      const int64_t held[] = {4, 5, 2, 3};
      for (int64_t slot = 0; slot < 4; ++slot) {
        EXPECT_EQ(ring::position_before_write<int64_t>(slot, 6, 4), held[slot]);
        EXPECT_EQ(cache.k_slots().data<float>()[slot * kKVHeads * kDim],
                  stream.whole.k().data<float>()[held[slot] * kKVHeads * kDim]);
      }
    }
    const KVView view = cache.fetch_and_concat(stream.block(6, 3));
    EXPECT_EQ(visible(view, 6, 4), (std::vector<int64_t>{3, 4, 5, 6}));
    EXPECT_EQ(visible(view, 7, 4), (std::vector<int64_t>{4, 5, 6, 7}));
    EXPECT_EQ(visible(view, 8, 4), (std::vector<int64_t>{5, 6, 7, 8}));
    EXPECT_LT(max_difference(widened(concat_step(cache, stream, 3, 4)), oracle(stream, 6, 3, 4)), 1e-5);

    // What overwriting first would have lost.
    std::vector<int64_t> lost;
    for (int64_t p = 3; p <= 5; ++p) {
      const int64_t now = ring::position_after_write<int64_t>(p % capacity, 6, 3, capacity);
      if (now != p) lost.push_back(p);
    }
    const std::vector<int64_t> expected = capacity == 4   ? std::vector<int64_t>{3, 4}
                                          : capacity == 5 ? std::vector<int64_t>{3}
                                                          : std::vector<int64_t>{};
    EXPECT_EQ(lost, expected);
    EXPECT_EQ(write_first_loses_keys(6, 3, capacity, 4), !expected.empty());
  }
}

/// All outputs of `stream` through a ring in chunks of `chunk`.
std::vector<float> run_all(const Stream& stream, int64_t capacity, int64_t window, int64_t chunk) {
  RingKVCache cache(capacity, window, kLayout);
  std::vector<float> all;
  for (const PlannedStep& step : plan_steps(0, stream.length, chunk, std::vector<int64_t>{capacity})) {
    const auto out = concat_step(cache, stream, step.count, window);
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}

// executorch #20346, litgpt #2182: a chunk larger than the ring can serve.
TEST(ReportedCases, EveryChunkSizeGivesTheSameOutputs) {
  const Stream stream(100, 42);
  const auto expected = run_all(stream, 16, 8, 1);
  for (const int64_t chunk : {2, 3, 5, 7, 8, 9, 10, 16, 17, 64, 100}) {
    EXPECT_EQ(run_all(stream, 16, 8, chunk), expected) << chunk;
  }
}

TEST(ReportedCases, WriteFirstBreaksAsManyQueriesAsTheReportsCounted) {
  const Stream stream(100, 43, DType::F32, 1.0F);
  for (const auto& [chunk, broken_queries] : {std::pair{8, 0}, {9, 0}, {10, 1}, {16, 7}}) {
    WriteFirstRing ring(16, 8);
    while (ring.offset() + chunk <= 100) {
      const int64_t offset = ring.offset();
      const auto got = ring.step(stream, chunk);
      const auto truth = oracle(stream, offset, chunk, 8);
      int wrong = 0;
      constexpr size_t kRow = kHeads * kDim;
      for (size_t i = 0; i < static_cast<size_t>(chunk); ++i) {
        const std::span<const double> row(got.data() + i * kRow, kRow);
        if (max_difference(row, {truth.data() + i * kRow, kRow}) > 1e-6) ++wrong;
      }
      // Later chunks only: the first has nothing to evict.
      EXPECT_EQ(wrong, offset < 16 - chunk + 1 ? 0 : broken_queries) << "chunk " << chunk << " at " << offset;
    }
  }
}

TEST(ReportedCases, ALaterTokenNeverMovesAnEarlierOutput) {
  const Stream a(40, 44);
  Stream b(40, 44);
  Tensor k = b.whole.k().clone();
  Tensor v = b.whole.v().clone();
  for (int64_t i = 39 * kKVHeads * kDim; i < 40 * kKVHeads * kDim; ++i) k.data<float>()[i] = v.data<float>()[i] = 99;
  b.whole = KVBlock::of(k, v);
  const auto before = run_all(a, 8, 8, 40);
  const auto after = run_all(b, 8, 8, 40);
  constexpr size_t kEarlier = 39 * kHeads * kDim;
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + kEarlier, after.begin()));
  EXPECT_NE(before, after);
}

// transformers #39408, #29623, mlx-lm #390: a window that counts one key too many.
TEST(ReportedCases, WindowCountsTheQueryItselfOnEveryPath) {
  Stream stream(6, 45);
  stream.q = Tensor(DType::F32, {6, kHeads, kDim});  // zero queries: the output is the mean of what is seen
  Tensor v(DType::F32, {6, kKVHeads, kDim});
  for (int64_t i = 0; i < v.elements(); ++i) v.data<float>()[i] = static_cast<float>(i / (kKVHeads * kDim));
  stream.whole = KVBlock::of(stream.whole.k(), v);

  RingKVCache prefill(3, 3, kLayout);
  EXPECT_EQ(concat_step(prefill, stream, 6, 3).back(), 4.0F);
  RingKVCache decode(3, 3, kLayout);
  for (int64_t i = 0; i < 5; ++i) decode_step(decode, stream, 3);
  EXPECT_EQ(decode_step(decode, stream, 3).back(), 4.0F);
  RingKVCache verify(3, 3, kLayout);
  concat_step(verify, stream, 4, 3);
  const auto two = concat_step(verify, stream, 2, 3);
  EXPECT_EQ(two.front(), 3.0F);
  EXPECT_EQ(two.back(), 4.0F);
}

TEST(ReportedCases, ATwoSidedBlockHasBothBounds) {
  const PositionRule rule{.left = 2, .right = 3};
  EXPECT_EQ(rule.first(10), 8);
  EXPECT_EQ(rule.end(10, 100), 14);
  EXPECT_EQ(rule.end(10, 12), 12);
  EXPECT_EQ(rule.first(1), 0);
}

// mlx-vlm #1715, Rapid-MLX #1124: a prefix reused from a wrapped ring.
TEST(ReportedCases, AWrappedRingResumesOnlyWhereItsWholeWindowIsHeld) {
  const Stream stream(48, 46);
  const auto cold = run_all(stream, 8, 8, 1);
  for (const auto& [capacity, usable_from] : {std::pair{8, 39}, {12, 35}, {16, 31}}) {
    for (int64_t k = 0; k <= 41; ++k) {
      RingKVCache cache(capacity, 8, kLayout);
      while (cache.offset() < 40) decode_step(cache, stream, 8);
      const bool usable = k == 0 || (k >= usable_from && k <= 40);
      ASSERT_EQ(cache.can_resume_at(k), usable) << "capacity " << capacity << " k " << k;
      if (!usable) {
        EXPECT_THROW(cache.truncate(k), Error);
        continue;
      }
      cache.truncate(k);
      EXPECT_EQ(cache.offset(), k);
      while (cache.offset() < 48) {
        const int64_t offset = cache.offset();
        const auto warm = concat_step(cache, stream, std::min<int64_t>(3, 48 - offset), 8);
        const auto* expected = cold.data() + offset * kHeads * kDim;
        ASSERT_TRUE(std::equal(warm.begin(), warm.end(), expected)) << "capacity " << capacity << " k " << k;
      }
    }
  }
}

TEST(ReportedCases, TruncatingTwiceNeverOffersWhatTheFirstTimeForgot) {
  const Stream stream(60, 47);
  RingKVCache cache(12, 8, kLayout);
  while (cache.offset() < 40) decode_step(cache, stream, 8);
  cache.truncate(36);  // slots of 36 to 39 held 24 to 27 once; those are gone
  EXPECT_EQ(cache.first_held(), 28);
  EXPECT_FALSE(cache.can_resume_at(34));
  EXPECT_TRUE(cache.can_resume_at(35));
  EXPECT_EQ(cache.held().first_position(), 28);
}

TEST(ReportedCases, TheSamePromptTwiceComputesOnlyItsLastToken) {
  const Stream stream(40, 48);
  RingKVCache cache(8, 8, kLayout);
  std::vector<float> first;
  while (cache.offset() < 40) first = decode_step(cache, stream, 8);
  ASSERT_TRUE(cache.can_resume_at(39));
  cache.truncate(39);
  EXPECT_EQ(decode_step(cache, stream, 8), first);
  EXPECT_EQ(cache.offset(), 40) << "the last token is not pushed in twice";
}

// llama.cpp #25297: saved state loses the ring's geometry.
TEST(ReportedCases, ARestoredRingContinuesWithTheSameBits) {
  const Stream stream(60, 49);
  for (const int64_t saved_at : {1, 5, 7, 8, 9, 16, 21, 37}) {
    RingKVCache original(8, 8, kLayout);
    while (original.offset() < saved_at) decode_step(original, stream, 8);
    const int64_t held = saved_at - original.first_held();
    for (const int64_t capacity : {8, 11}) {  // another capacity too: slots follow from positions
      RingKVCache restored(capacity, 8, kLayout);
      for (int64_t i = 0; i < 3; ++i) decode_step(restored, stream, 8);  // what was there before must not matter
      restored.restore(saved_at, stream.block(saved_at - held, held));
      if (capacity == 8) {
        EXPECT_TRUE(std::ranges::equal(restored.k_slots().span(), original.k_slots().span()));
      }
      RingKVCache reference(8, 8, kLayout);
      while (reference.offset() < saved_at) decode_step(reference, stream, 8);
      for (int64_t i = 0; i < 16; ++i) ASSERT_EQ(decode_step(restored, stream, 8), decode_step(reference, stream, 8));
    }
  }
}

// onnxruntime-genai #552, llama.cpp #8931: every window has a defined outcome.
TEST(ReportedCases, EveryWindowHasADefinedOutcome) {
  EXPECT_THROW(RingKVCache(8, 0, kLayout), Error);
  EXPECT_THROW(RingKVCache(8, 9, kLayout), Error);
  const Stream stream(20, 50);  // a window larger than the text is plain causal attention
  RingKVCache wide(64, 64, kLayout);
  EXPECT_LT(max_difference(widened(concat_step(wide, stream, 20, 64)), oracle(stream, 0, 20, 1000)), 1e-5);
  const Stream odd(60, 51);  // Phi-3's window is odd on purpose
  RingKVCache ring(7, 7, kLayout);
  EXPECT_LT(max_difference(widened(concat_step(ring, odd, 60, 7)), oracle(odd, 0, 60, 7)), 1e-5);
}

// mlx-lm #439, #738, #1699, ollama #12543: rows of one batch disturbed each other.
TEST(ReportedCases, RowsOfDifferentLengthEqualTheirSoloRuns) {
  struct Row {
    Row(int64_t prompt_length, uint32_t seed)
        : stream(prompt_length + 20, seed), prompt(prompt_length), cache(8, 8, kLayout), solo(8, 8, kLayout) {}
    Stream stream;
    int64_t prompt;
    RingKVCache cache;
    RingKVCache solo;
    bool done() const { return cache.offset() == stream.length; }
  };
  std::vector<std::unique_ptr<Row>> rows;
  uint32_t seed = 60;
  for (const int64_t length : {3, 8, 17, 40}) rows.push_back(std::make_unique<Row>(length, seed++));
  for (const auto& row : rows) {  // solo: the prompt whole; in the batch: chunks that interleave
    concat_step(row->solo, row->stream, row->prompt, 8);
  }
  int replaced = 0;
  while (!std::ranges::all_of(rows, [](const auto& row) { return row->done(); })) {
    for (auto& row : rows) {
      if (row->done()) {
        if (replaced++ == 0) {  // one row leaves early and a new one takes its place
          row = std::make_unique<Row>(11, seed++);
          concat_step(row->solo, row->stream, row->prompt, 8);
        }
        continue;
      }
      if (row->cache.offset() < row->prompt) {
        concat_step(row->cache, row->stream, std::min<int64_t>(5, row->prompt - row->cache.offset()), 8);
      } else {
        ASSERT_EQ(decode_step(row->cache, row->stream, 8), decode_step(row->solo, row->stream, 8));
      }
      EXPECT_EQ(row->cache.bytes_held(), 8 * 2 * kLayout.bytes()) << "never more than the window between steps";
    }
  }
  EXPECT_GT(replaced, 0);
}

TEST(ReportedCases, AClearedRingIsANewOne) {
  const Stream stream(30, 70);
  RingKVCache used(8, 8, kLayout);
  concat_step(used, stream, 30, 8);
  used.clear();
  RingKVCache fresh(8, 8, kLayout);
  EXPECT_TRUE(std::ranges::equal(used.k_slots().span(), fresh.k_slots().span()));
  EXPECT_EQ(concat_step(used, stream, 30, 8), concat_step(fresh, stream, 30, 8));
}

}  // namespace
}  // namespace slipring::test
