#include <gtest/gtest.h>

#include <slipring/error.h>
#include <slipring/ring.h>

namespace slipring::ring {
namespace {

/// What a slot holds after `end` positions were written one by one: the definition, by replay.
std::vector<int64_t> replay(int64_t end, int64_t capacity) {
  std::vector<int64_t> slots(static_cast<size_t>(capacity), -1);
  for (int64_t p = 0; p < end; ++p) slots[static_cast<size_t>(p % capacity)] = p;
  return slots;
}

std::vector<SlotRun> listed(const SlotRuns& found) {
  return {found.begin(), found.end()};
}

TEST(Ring, PositionInSlotIsWhatAReplayOfWritesLeaves) {
  for (const int64_t capacity : {1, 2, 7, 8, 12}) {
    for (int64_t end = 0; end <= 3 * capacity + 1; ++end) {
      const auto slots = replay(end, capacity);
      for (int64_t slot = 0; slot < capacity; ++slot) {
        const int64_t held = slots[static_cast<size_t>(slot)];
        const int64_t position = position_in_slot(slot, end, capacity);
        if (held < 0) {
          EXPECT_EQ(position, slot - capacity) << "an empty slot; capacity " << capacity << ", end " << end;
        } else {
          EXPECT_EQ(position, held) << "capacity " << capacity << ", end " << end << ", slot " << slot;
          EXPECT_EQ(slot_of(position, capacity), slot);
        }
      }
    }
  }
}

TEST(Ring, SymbolicAndPlainFormulasAgreeAndNoRemainderIsNegative) {
  const SymInt offset = SymInt::dimension("offset");
  const SymInt query_len = SymInt::dimension("query_len");
  for (int64_t slot = 0; slot < 8; ++slot) {
    const SymInt before = position_before_write<SymInt>(slot, offset, 8);
    const SymInt after = position_after_write<SymInt>(slot, offset, query_len, 8);
    for (int64_t at = 0; at < 20; ++at) {  // evaluate() would throw on a negative operand of %
      const DimensionBindings bindings{{"offset", at}, {"query_len", 3}};
      EXPECT_EQ(before.evaluate(bindings), position_before_write<int64_t>(slot, at, 8));
      EXPECT_EQ(after.evaluate(bindings), position_after_write<int64_t>(slot, at, 3, 8));
    }
  }
  const Step step{.offset = offset, .query_len = query_len, .capacity = 8, .window = 8};
  EXPECT_EQ(step.write_begin().to_string(), "offset % 8");
  EXPECT_EQ(step.seq_len().to_string(), "offset + query_len");
  EXPECT_EQ(visible_span<SymInt>(8, query_len).evaluate({{"query_len", 5}}), 12);
}

TEST(Ring, VisibleSpanCountsTheKeysThatAStepSees) {
  for (int64_t window = 1; window <= 5; ++window) {
    for (int64_t query_len = 1; query_len <= 6; ++query_len) {
      int64_t seen = 0;
      for (int64_t key = 0; key < 40; ++key) {
        bool any = false;
        for (int64_t query = 20; query < 20 + query_len; ++query) any = any || sees(query, key, window);
        seen += any ? 1 : 0;
      }
      EXPECT_EQ(visible_span(window, query_len), seen);
    }
  }
}

TEST(Ring, RunsAreAtMostTwoAndOldestFirst) {
  EXPECT_TRUE(runs(0, 0, 8).empty());
  EXPECT_EQ(listed(runs(0, 5, 8)), (std::vector<SlotRun>{{0, 0, 5}}));
  EXPECT_EQ(listed(runs(3, 11, 8)), (std::vector<SlotRun>{{3, 3, 5}, {0, 8, 3}}));
  EXPECT_EQ(listed(runs(8, 16, 8)), (std::vector<SlotRun>{{0, 8, 8}}));
  EXPECT_EQ(room_before_wrap(11, 8), 5);
  EXPECT_EQ(room_before_wrap(16, 8), 8);
}

TEST(Ring, RefusesRunsThatNoRingHolds) {
  EXPECT_THROW(runs(0, 9, 8), Error);
  EXPECT_THROW(runs(-1, 3, 8), Error);
  EXPECT_THROW(runs(4, 3, 8), Error);
  EXPECT_THROW(runs(0, 0, 0), Error);
  EXPECT_THROW(check_geometry(0, 1, "t"), Error);
  EXPECT_THROW(check_geometry(8, 9, "t"), Error);
  EXPECT_THROW(check_geometry(8, 0, "t"), Error);
}

}  // namespace
}  // namespace slipring::ring
