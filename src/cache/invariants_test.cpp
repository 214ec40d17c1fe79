#include "cache/invariants.h"

#include <functional>
#include <gtest/gtest.h>

#include <slipring/error.h>
#include <slipring/full_kv_cache.h>
#include <slipring/ring_kv_cache.h>

namespace slipring {
namespace {

constexpr KVLayout kLayout{.n_kv_heads = 2, .head_dim = 4, .dtype = DType::F16};

KVBlock zeros(int64_t count) {
  return KVBlock::of(Tensor(DType::F16, {count, 2, 4}), Tensor(DType::F16, {count, 2, 4}));
}

TEST(Invariants, HoldForSoundCaches) {
  RingKVCache ring(8, 5, kLayout);
  FullKVCache full(kLayout);
  for (int64_t i = 0; i < 30; ++i) {
    ring.update(zeros(1));
    full.update(zeros(20));
    EXPECT_TRUE(violations(snapshot(ring)).empty());
    EXPECT_TRUE(violations(snapshot(full)).empty());
  }
}

TEST(Invariants, EachBrokenFactOfARingIsFound) {
  RingKVCache ring(8, 5, kLayout);
  for (int64_t i = 0; i < 11; ++i) ring.update(zeros(1));
  const CacheSnapshot good = snapshot(ring);
  ASSERT_EQ(good.runs.size(), 2U);
  const std::function<void(CacheSnapshot&)> mistakes[] = {
      [](CacheSnapshot& c) { c.offset += 1; },
      [](CacheSnapshot& c) { c.offset = -1; },
      [](CacheSnapshot& c) { c.first_held -= 1; },
      [](CacheSnapshot& c) { c.first_held += 5; },
      [](CacheSnapshot& c) { c.window = 9; },
      [](CacheSnapshot& c) { c.window = 0; },
      [](CacheSnapshot& c) { c.bytes_held += c.position_bytes; },
      [](CacheSnapshot& c) { c.room_before_wrap += 1; },
      [](CacheSnapshot& c) { c.runs.pop_back(); },
      [](CacheSnapshot& c) { c.runs[0].k_place = 0; },
      [](CacheSnapshot& c) { c.runs[1].v_place += 1; },
      [](CacheSnapshot& c) { c.runs[1].count = 0; },
      [](CacheSnapshot& c) { std::swap(c.runs[0], c.runs[1]); },
      [](CacheSnapshot& c) { c.runs.insert(c.runs.begin() + 1, c.runs[0]); },
  };
  int which = 0;
  for (const auto& mistake : mistakes) {
    CacheSnapshot bad = good;
    mistake(bad);
    EXPECT_FALSE(violations(bad).empty()) << "mistake " << which;
    ++which;
  }
}

TEST(Invariants, EachBrokenFactOfAFullCacheIsFound) {
  FullKVCache full(kLayout);
  full.update(zeros(300));
  const CacheSnapshot good = snapshot(full);
  CacheSnapshot bad = good;
  bad.first_held = 1;
  EXPECT_FALSE(violations(bad).empty());
  bad = good;
  bad.capacity += FullKVCache::kPagePositions;
  EXPECT_FALSE(violations(bad).empty()) << "a fixed allocation for the maximum";
  bad = good;
  bad.bytes_held -= 1;
  EXPECT_FALSE(violations(bad).empty());
  EXPECT_THROW(require_none(violations(bad)), Error);
  EXPECT_NO_THROW(require_none(violations(good)));
}

}  // namespace
}  // namespace slipring
