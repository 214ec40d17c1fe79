// Want of memory in the prefix store: what it counts stays what it holds.
#include <slipring/prefix_store.h>

#include "support.h"

namespace slipring::testing {
namespace {

std::shared_ptr<const Snapshot> snapshot_of(int64_t length, const std::shared_ptr<const Snapshot>& base = nullptr) {
  Session session(small_model(), {.kv_dtype = DType::F16, .context = 0, .chunk = 512, .threads = 1});
  session.prefill(part(0, length));
  return Snapshot::take(session, {}, base);
}

TEST(PrefixStoreWithoutMemory, CountsWhatItHolds) {
  const auto first = snapshot_of(40);
  const auto longer = snapshot_of(70, first);  // shares keys with the first
  const auto same = snapshot_of(40);
  const auto other = snapshot_of(8);
  for (const int64_t budget : {first->bytes() + longer->bytes() + other->bytes(), longer->bytes()}) {
    for (const auto& next : {longer, same, other}) {
      for (int64_t nth = 1;; ++nth) {
        PrefixStore store(small_model()->spec(), {.budget_bytes = budget});
        store.put(first);
        const PrefixStoreStats before = store.stats();
        bool failed = false;
        bool refused = false;
        {
          const FailingAllocation failing(nth);
          refused = out_of_memory([&] { store.put(next); });
          failed = failing.failed();
        }
        ASSERT_EQ(refused, failed);
        if (refused) {
          ASSERT_EQ(store.stats().bytes, before.bytes) << "allocation " << nth;
          ASSERT_EQ(store.stats().snapshots, before.snapshots) << "allocation " << nth;
          ASSERT_EQ(store.find(part(0, 41)).snapshot, first) << "what is to be replaced is still there";
        }
        store.put(next);
        ASSERT_LE(store.stats().bytes, budget);
        ASSERT_EQ(store.find(part(0, next->length() + 1)).snapshot, next);
        store.clear();
        ASSERT_EQ(store.stats().bytes, 0) << "allocation " << nth;
        if (!failed) break;
      }
    }
  }
}

}  // namespace
}  // namespace slipring::testing
