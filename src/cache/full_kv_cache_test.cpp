#include <gtest/gtest.h>

#include <slipring/full_kv_cache.h>

namespace slipring {
namespace {

constexpr int64_t kPage = FullKVCache::kPagePositions;
constexpr KVLayout kLayout{.n_kv_heads = 1, .head_dim = 1, .dtype = DType::F32};

KVBlock numbered(int64_t first, int64_t count) {
  Tensor k(DType::F32, {count, 1, 1});
  for (int64_t i = 0; i < count; ++i) k.data<float>()[i] = static_cast<float>(first + i);
  return KVBlock::of(k, k);
}

void expect_positions(const KVView& view, int64_t end) {
  EXPECT_EQ(view.first_position(), 0);
  EXPECT_EQ(view.end_position(), end);
  for (const KVRun& run : view.runs) {
    for (int64_t i = 0; i < run.count; ++i) {
      ASSERT_EQ(static_cast<const float*>(run.k)[i], static_cast<float>(run.first_position + i));
      ASSERT_EQ(static_cast<const float*>(run.v)[i], static_cast<float>(run.first_position + i));
    }
  }
}

TEST(FullKVCache, GrowsByPagesAndNeverMovesWhatItHolds) {
  FullKVCache cache(kLayout);
  EXPECT_EQ(cache.bytes_held(), 0);
  cache.update(numbered(0, kPage - 1));
  const void* first_page = cache.held().runs[0].k;
  EXPECT_EQ(cache.bytes_held(), kPage * 8);
  cache.update(numbered(kPage - 1, 2 * kPage + 3));  // across two page ends
  EXPECT_EQ(cache.bytes_held(), 4 * kPage * 8);
  EXPECT_EQ(cache.held().runs[0].k, first_page);
  expect_positions(cache.held(), 3 * kPage + 2);
  expect_positions(cache.fetch_and_concat(numbered(3 * kPage + 2, 5)), 3 * kPage + 7);
  expect_positions(cache.update_and_fetch(numbered(3 * kPage + 2, 5)), 3 * kPage + 7);
}

TEST(FullKVCache, TruncatesToAnyPositionAndFreesPages) {
  FullKVCache cache(kLayout);
  cache.update(numbered(0, 2 * kPage + 9));
  EXPECT_TRUE(cache.can_resume_at(kPage));
  cache.truncate(kPage);
  EXPECT_EQ(cache.bytes_held(), kPage * 8);
  expect_positions(cache.held(), kPage);
  cache.update(numbered(kPage, 4));
  expect_positions(cache.held(), kPage + 4);
  cache.clear();
  EXPECT_EQ(cache.bytes_held(), 0);
  cache.restore(kPage + 1, numbered(0, kPage + 1));
  expect_positions(cache.held(), kPage + 1);
}

}  // namespace
}  // namespace slipring
