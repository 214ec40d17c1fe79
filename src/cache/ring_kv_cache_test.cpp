#include <gtest/gtest.h>
#include <numeric>

#include <slipring/ring_kv_cache.h>

#include "tensor/half.h"

namespace slipring {
namespace {

/// A block whose key at position p is p in every element, and its value -p.
KVBlock numbered(int64_t first, int64_t count, DType dtype = DType::F32) {
  Tensor k(DType::F32, {count, 1, 2});
  Tensor v(DType::F32, {count, 1, 2});
  for (int64_t i = 0; i < 2 * count; ++i) {
    k.data<float>()[i] = static_cast<float>(first + i / 2);
    v.data<float>()[i] = -k.data<float>()[i];
  }
  return KVBlock::round(k, v, dtype);
}

constexpr KVLayout kLayout{.n_kv_heads = 1, .head_dim = 2, .dtype = DType::F32};

float key(const KVRun& run, int64_t i) {
  return static_cast<const float*>(run.k)[2 * i];
}

TEST(RingKVCache, HoldsExactlyItsCapacity) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    RingKVCache cache(8, 5, {.n_kv_heads = 3, .head_dim = 4, .dtype = dtype});
    EXPECT_EQ(cache.bytes_held(), 2 * 8 * 3 * 4 * (dtype == DType::F32 ? 4 : 2));
  }
}

TEST(RingKVCache, FetchCopiesNothingAndReadsBeforeTheWrite) {
  RingKVCache cache(4, 4, kLayout);
  EXPECT_TRUE(cache.held().runs.empty());
  for (int64_t p = 0; p < 6; ++p) cache.update(numbered(p, 1));
  const KVBlock block = numbered(6, 3);
  const KVView view = cache.fetch_and_concat(block);
  ASSERT_EQ(view.runs.size(), 3U);
  EXPECT_EQ(view.first_position(), 2);
  EXPECT_EQ(view.end_position(), 9);
  EXPECT_EQ(view.runs[0].k, cache.k_slots().data<float>() + 2 * 2) << "positions 2 and 3 lie in slots 2 and 3";
  EXPECT_EQ(view.runs[1].v, cache.v_slots().data<float>()) << "positions 4 and 5 lie in slots 0 and 1";
  EXPECT_EQ(view.runs[2].k, block.k().raw());
  for (const KVRun& run : view.runs) {
    for (int64_t i = 0; i < run.count; ++i) EXPECT_EQ(key(run, i), static_cast<float>(run.first_position + i));
  }
  EXPECT_EQ(cache.offset(), 6) << "reading wrote nothing";
}

TEST(RingKVCache, UpdateAndFetchSeesTheNewTokenAndHasEvictedTheOldest) {
  RingKVCache cache(4, 4, kLayout);
  for (int64_t p = 0; p < 6; ++p) cache.update(numbered(p, 1));
  const KVView view = cache.update_and_fetch(numbered(6, 1));
  EXPECT_EQ(view.first_position(), 3);
  EXPECT_EQ(view.end_position(), 7);
  EXPECT_EQ(cache.offset(), 7);
}

TEST(RingKVCache, CommitTakesAPrefixInTwoUpdatesWhereItWraps) {
  RingKVCache cache(4, 4, kLayout);
  cache.update(numbered(0, 3));
  cache.commit(numbered(3, 5), 3);  // positions 3, 4, 5; slots 3, 0, 1
  EXPECT_EQ(cache.offset(), 6);
  const float expected[] = {4, 5, 2, 3};
  for (int64_t slot = 0; slot < 4; ++slot) EXPECT_EQ(cache.k_slots().data<float>()[slot * 2], expected[slot]);
  cache.commit(numbered(6, 2), 0);
  EXPECT_EQ(cache.offset(), 6);
}

TEST(KVBlock, RoundsToTheCacheDtypeAndSharesFloat32) {
  const Tensor x = Tensor::from(std::vector<float>{1.0001F, -3.3F}, {1, 1, 2});
  EXPECT_EQ(KVBlock::round(x, x, DType::F32).k().raw(), x.raw());
  const KVBlock half = KVBlock::round(x, x, DType::F16);
  const KVBlock brain = KVBlock::round(x, x, DType::BF16);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(half.k().data<uint16_t>()[i], f16_from_f32(x.data<float>()[i]));
    EXPECT_EQ(brain.v().data<uint16_t>()[i], bf16_from_f32(x.data<float>()[i]));
  }
}

TEST(KVBlock, SlicesShareStorageAndKeepItAlive) {
  KVBlock slice = numbered(0, 1);
  {
    const KVBlock whole = numbered(10, 5);
    slice = whole.slice(2, 2);
    EXPECT_EQ(slice.k().raw(), whole.k().data<float>() + 4);
  }
  EXPECT_EQ(slice.query_len(), 2);
  EXPECT_EQ(slice.k().data<float>()[0], 12.0F);
  EXPECT_EQ(slice.v().data<float>()[2], -13.0F);
}

}  // namespace
}  // namespace slipring
