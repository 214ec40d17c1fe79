// Property: the concat path and decode against an oracle that keeps the whole history and shares nothing with the ring.
#include <algorithm>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <slipring/error.h>
#include <slipring/full_kv_cache.h>
#include <slipring/masks.h>
#include <slipring/ring_kv_cache.h>
#include <slipring/step_plan.h>

#include "cache/invariants.h"
#include "support.h"

namespace slipring::test {
namespace {

constexpr double kNoise = 1e-5;  // of float32 against the float64 oracle, on values of size 1

/// Steps the cache on the concat path; returns the largest error against the oracle.
double concat_error(LayerCache& cache, const Stream& stream, int64_t count, int64_t window) {
  const int64_t offset = cache.offset();
  const auto got = concat_step(cache, stream, count, window);
  return max_difference(widened(got), oracle(stream, offset, count, window));
}

/// Any of low ... high - 1, alike in every case: RapidCheck's own ranges begin small and grow.
int64_t pick(int64_t low, int64_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<int64_t>(low, high));
}

struct Case {
  const char* what;
  int64_t capacity;
  int64_t window;
  int64_t before;  ///< positions decoded one by one first
  int64_t query_len;
};

const Case kCases[] = {
    {"a chunk at offset >= W", 8, 8, 8, 5},
    {"a chunk deep into the text", 8, 8, 40, 4},
    {"a chunk whose read window straddles the physical wrap", 8, 8, 11, 5},
    {"a chunk that fills the ring exactly", 8, 8, 16, 8},
    {"a chunk that fills an empty ring exactly", 8, 8, 0, 8},
    {"the control: one token", 8, 8, 21, 1},
    {"a chunk that crosses the wrap, committed in two", 8, 8, 13, 6},
    {"a chunk longer than the ring", 8, 8, 13, 29},
    {"capacity above the window", 12, 8, 19, 5},
    {"odd sizes", 20, 7, 47, 13},
    {"a window of one", 1, 1, 5, 4},
};

TEST(OracleProof, ConcatPathIsFullAttentionUnderTheWindow) {
  const Stream stream(100, 2);
  for (const Case& c : kCases) {
    RingKVCache cache(c.capacity, c.window, kLayout);
    for (int64_t i = 0; i < c.before; ++i) {
      const auto got = decode_step(cache, stream, c.window);
      ASSERT_LE(max_difference(widened(got), oracle(stream, i, 1, c.window)), kNoise) << c.what;
    }
    EXPECT_LE(concat_error(cache, stream, c.query_len, c.window), kNoise) << c.what;
    EXPECT_LE(concat_error(cache, stream, 3, c.window), kNoise) << "the step after " << c.what;
  }
}

TEST(OracleProof, AnExportedStepOverTheRawSlotsAndTheConcatMaskGivesTheSame) {
  const Stream stream(100, 3);
  for (const Case& c : kCases) {
    RingKVCache cache(c.capacity, c.window, kLayout);
    while (cache.offset() < c.before) decode_step(cache, stream, c.window);
    const KVBlock block = stream.block(c.before, c.query_len);
    std::vector<const float*> k;
    std::vector<const float*> v;
    for (int64_t s = 0; s < c.capacity; ++s) {
      k.push_back(cache.k_slots().data<float>() + s * kKVHeads * kDim);
      v.push_back(cache.v_slots().data<float>() + s * kKVHeads * kDim);
    }
    for (int64_t j = 0; j < c.query_len; ++j) {
      k.push_back(block.k().data<float>() + j * kKVHeads * kDim);
      v.push_back(block.v().data<float>() + j * kKVHeads * kDim);
    }
    const Tensor mask = concat_window_causal_mask(cache.step(c.query_len));
    EXPECT_LE(max_difference(masked_attention(stream, c.before, c.query_len, mask, k, v),
                             oracle(stream, c.before, c.query_len, c.window)),
              1e-9)
        << c.what;
  }
}

RC_GTEST_PROP(OracleProof, AnySequenceOfStepsOverSeveralWraps, ()) {
  const int64_t window = pick(1, 14);
  const int64_t capacity = window + pick(0, 7);
  const DType dtype = *rc::gen::element(DType::F32, DType::F16, DType::BF16);
  const Stream stream(90, *rc::gen::arbitrary<uint32_t>(), dtype);
  KVLayout layout = kLayout;
  layout.dtype = dtype;
  RingKVCache ring(capacity, window, layout);
  FullKVCache full(layout);  // the embeddings path: everything held, the window a mask
  while (ring.offset() < 70) {
    const int64_t offset = ring.offset();
    if (pick(0, 4) == 0) {
      const auto got = decode_step(ring, stream, window);
      RC_ASSERT(max_difference(widened(got), oracle(stream, offset, 1, window)) <= kNoise);
      RC_ASSERT(got == decode_step(full, stream, window));
    } else {
      const int64_t count = pick(1, 20);
      const auto got = concat_step(ring, stream, count, window);
      RC_ASSERT(max_difference(widened(got), oracle(stream, offset, count, window)) <= kNoise);
      RC_ASSERT(got == concat_step(full, stream, count, window));
    }
    RC_ASSERT(violations(snapshot(ring)).empty());
    RC_ASSERT(violations(snapshot(full)).empty());
    RC_ASSERT(ring.bytes_held() == 2 * capacity * layout.bytes());
  }
}

/// Speculation: a step of which only the first n positions are kept, again and again.
RC_GTEST_PROP(OracleProof, RejectedPositionsNeverTouchTheRing, ()) {
  const int64_t window = pick(1, 10);
  const int64_t capacity = window + pick(0, 4);
  const Stream stream(80, 5);
  const Stream rejected(80, 6);
  RingKVCache cache(capacity, window, kLayout);
  RingKVCache plain(capacity, window, kLayout);
  for (int round = 0; round < 40 && cache.offset() < 60; ++round) {  // a drafter may be wrong every time
    const int64_t offset = cache.offset();
    const int64_t proposed = pick(1, 8);
    const int64_t accepted = pick(0, proposed + 1);
    // The block's first `accepted` positions are right, the others are a drafter's mistakes.
    Tensor k = rejected.block(offset, proposed).k().clone();
    Tensor v = rejected.block(offset, proposed).v().clone();
    if (accepted > 0) {
      const KVBlock right = stream.block(offset, accepted);
      std::copy_n(right.k().data<float>(), right.k().elements(), k.data<float>());
      std::copy_n(right.v().data<float>(), right.v().elements(), v.data<float>());
    }
    const KVBlock block = KVBlock::round(k, v, DType::F32);
    const auto got = attend(cache.fetch_and_concat(block), stream, offset, proposed, window);
    cache.commit(block, accepted);
    for (int64_t i = 0; i < accepted; ++i) decode_step(plain, stream, window);
    const std::span<const float> kept(got.data(), static_cast<size_t>(accepted * kHeads * kDim));
    RC_ASSERT(max_difference(widened(kept), oracle(stream, offset, accepted, window)) <= kNoise);
    RC_ASSERT(cache.offset() == offset + accepted);
    RC_ASSERT(std::ranges::equal(cache.k_slots().span(), plain.k_slots().span()));
    RC_ASSERT(std::ranges::equal(cache.v_slots().span(), plain.v_slots().span()));
    RC_ASSERT(violations(snapshot(cache)).empty());
  }
}

TEST(OracleProof, ChunksOfAPlanGiveTheSameBitsWhateverTheChunkSize) {
  const Stream stream(100, 7, DType::BF16);
  KVLayout layout = kLayout;
  layout.dtype = DType::BF16;
  std::vector<float> first;
  for (const int64_t chunk : {1, 5, 7, 16, 33, 100}) {
    RingKVCache cache(12, 8, layout);
    std::vector<float> all;
    for (const PlannedStep& step : plan_steps(0, 100, chunk, std::vector<int64_t>{12})) {
      const auto out = concat_step(cache, stream, step.count, 8);
      all.insert(all.end(), out.begin(), out.end());
    }
    if (first.empty()) first = all;
    EXPECT_EQ(all, first) << "chunk " << chunk;
  }
}

/// Mutations of the view that the oracle must see: it is what a broken fetch_and_concat would give.
TEST(OracleMutation, EveryBrokenViewIsSeen) {
  const Stream stream(60, 8);
  RingKVCache cache(8, 8, kLayout);
  while (cache.offset() < 19) decode_step(cache, stream, 8);
  const KVBlock block = stream.block(19, 3);
  const KVView good = cache.fetch_and_concat(block);
  ASSERT_EQ(good.runs.size(), 3U);
  const auto truth = oracle(stream, 19, 3, 8);
  const auto error = [&](const KVView& view, int64_t window) {
    return max_difference(widened(attend(view, stream, 19, 3, window)), truth);
  };
  EXPECT_LE(error(good, 8), kNoise);

  KVView lost_oldest = good;
  lost_oldest.runs.erase(lost_oldest.runs.begin());
  EXPECT_GT(error(lost_oldest, 8), 0.01);
  KVView swapped = good;  // slot order instead of position order: the memory of one run under the other's positions
  std::swap(swapped.runs[0].k, swapped.runs[1].k);
  std::swap(swapped.runs[0].count, swapped.runs[1].count);
  swapped.runs[1].count = std::min(swapped.runs[0].count, swapped.runs[1].count);
  EXPECT_GT(error(swapped, 8), 0.01);
  KVView shifted = good;
  shifted.runs[0].first_position += 1;
  shifted.runs[0].count -= 1;
  EXPECT_GT(error(shifted, 8), 0.01);
  EXPECT_GT(error(good, 7), 0.01);
}

}  // namespace
}  // namespace slipring::test
