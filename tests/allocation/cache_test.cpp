// Want of memory in the caches themselves: every byte stays.
#include <slipring/full_kv_cache.h>

#include "support.h"

namespace slipring::testing {
namespace {

constexpr KVLayout kLayout{.n_kv_heads = 2, .head_dim = 4, .dtype = DType::F32};

KVBlock numbered(int64_t first, int64_t count) {
  Tensor k(DType::F32, {count, kLayout.n_kv_heads, kLayout.head_dim});
  for (int64_t i = 0; i < k.elements(); ++i) {
    k.data<float>()[i] = static_cast<float>(first * kLayout.elements() + i);
  }
  return KVBlock::of(k, k.clone());
}

std::string bytes(const LayerCache& cache) {
  std::string all = std::to_string(cache.first_held()) + "-" + std::to_string(cache.offset()) + "," +
                    std::to_string(cache.bytes_held()) + ":";
  if (const auto* ring = dynamic_cast<const RingKVCache*>(&cache)) {
    append(all, ring->k_slots());
    append(all, ring->v_slots());
  } else {
    append(all, copy_positions(cache, 0).k());
  }
  return all;
}

template <class Make, class Call>
int64_t fail_everywhere_in_a_cache(Make&& make, Call&& call) {
  for (int64_t nth = 1;; ++nth) {
    const std::unique_ptr<LayerCache> cache = make();
    const std::string before = bytes(*cache);
    bool refused = false;
    {
      const FailingAllocation failing(nth);
      refused = out_of_memory([&] { call(*cache); });
      if (!failing.failed()) return nth - 1;
    }
    EXPECT_TRUE(refused) << "allocation " << nth;
    EXPECT_EQ(bytes(*cache), before) << "allocation " << nth;
    if (::testing::Test::HasFailure()) return nth;
  }
}

std::unique_ptr<LayerCache> ring() {
  auto cache = std::make_unique<RingKVCache>(8, 6, kLayout);
  cache->commit(numbered(0, 11), 11);
  return cache;
}

std::unique_ptr<LayerCache> full() {
  auto cache = std::make_unique<FullKVCache>(kLayout);
  cache->update(numbered(0, FullKVCache::kPagePositions));
  return cache;
}

TEST(CachesWithoutMemory, ARingWritesWithoutAny) {
  const KVBlock block = numbered(11, 9);
  EXPECT_EQ(fail_everywhere_in_a_cache(ring, [&](LayerCache& c) { c.update(block, 1, 3); }), 0);
  EXPECT_EQ(fail_everywhere_in_a_cache(ring, [&](LayerCache& c) { c.commit(block, 7); }), 0);
  EXPECT_EQ(fail_everywhere_in_a_cache(ring, [&](LayerCache& c) { c.restore(20, block); }), 0);
  EXPECT_EQ(fail_everywhere_in_a_cache(ring, [&](LayerCache& c) { c.truncate(10); }), 0);
}

TEST(CachesWithoutMemory, WriteAndFetchIsAllOrNothing) {
  const KVBlock one = numbered(11, 1);
  EXPECT_GT(fail_everywhere_in_a_cache(ring, [&](LayerCache& c) { c.update_and_fetch(one); }), 0);
  EXPECT_GT(fail_everywhere_in_a_cache(full, [&](LayerCache& c) { c.update_and_fetch(one); }), 0);
}

TEST(CachesWithoutMemory, AFullCacheGrowsOrDoesNot) {
  const KVBlock block = numbered(0, 300);
  EXPECT_GT(fail_everywhere_in_a_cache(full, [&](LayerCache& c) { c.update(block, 5, 290); }), 0);
  EXPECT_GT(fail_everywhere_in_a_cache(full, [&](LayerCache& c) { c.restore(300, block); }), 0);
  // Once there is room, the write needs none.
  const auto cache = full();
  cache->reserve(290);
  const FailingAllocation failing(1);
  cache->commit(block, 290);
  EXPECT_FALSE(failing.failed());
}

TEST(CachesWithoutMemory, ATakenBackWriteLeavesEveryByte) {
  for (const int64_t offset : {3, 8, 11, 16}) {
    RingKVCache cache(8, 6, kLayout);
    cache.commit(numbered(0, offset), offset);
    const std::string before = bytes(cache);
    std::vector<std::byte> saved(static_cast<size_t>(2 * kLayout.bytes()));
    cache.save_next_slot(saved.data());
    cache.update(numbered(offset, 1));
    ASSERT_NE(bytes(cache), before);
    cache.undo_update(saved.data());
    EXPECT_EQ(bytes(cache), before) << "offset " << offset;
  }
}

}  // namespace
}  // namespace slipring::testing
