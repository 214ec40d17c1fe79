// The opposite of a proof, kept: writing first with more than one token is wrong, visibly, in the regime that the guard
// refuses. A suite that could not see this bug would prove nothing about its absence.
#include <gtest/gtest.h>

#include <slipring/error.h>
#include <slipring/ring.h>
#include <slipring/write_first.h>

#include "support.h"

namespace slipring::test {
namespace {

bool guard_refuses(int64_t query_len) {
  try {
    check_write_first(query_len, true);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::write_first_needs_single_token);
    return true;
  }
  return false;
}

TEST(WriteFirst, DivergesFromTheOracleExactlyWhereKeysAreLostAndTheGuardRefusesAllOfIt) {
  struct Geometry {
    int64_t capacity;
    int64_t window;
  };
  for (const auto& [capacity, window] : {Geometry{8, 8}, Geometry{8, 4}, Geometry{12, 9}}) {
    const Stream stream(60, 11, DType::F32, 1.0F);
    int diverged = 0;
    for (int64_t offset = 0; offset <= 3 * capacity; ++offset) {
      for (int64_t query_len = 1; query_len <= capacity - offset % capacity; ++query_len) {
        WriteFirstRing broken(capacity, window);
        while (broken.offset() < offset) broken.step(stream, 1);
        const double error = max_difference(broken.step(stream, query_len), oracle(stream, offset, query_len, window));
        if (write_first_loses_keys(offset, query_len, capacity, window)) {
          EXPECT_GT(error, 0.1) << "offset " << offset << " Q " << query_len << " capacity " << capacity;
          EXPECT_TRUE(guard_refuses(query_len));
          ++diverged;
        } else {
          EXPECT_LT(error, 1e-9) << "offset " << offset << " Q " << query_len << " capacity " << capacity;
        }
      }
    }
    EXPECT_GT(diverged, 0);
  }
}

TEST(WriteFirst, OneTokenAtATimeMatchesTheOracleAndTheGuardLetsItPass) {
  const Stream stream(60, 12, DType::F32, 1.0F);
  WriteFirstRing ring(8, 8);
  while (ring.offset() < 40) {
    const int64_t offset = ring.offset();
    EXPECT_LT(max_difference(ring.step(stream, 1), oracle(stream, offset, 1, 8)), 1e-9) << offset;
  }
  EXPECT_FALSE(guard_refuses(1));
}

TEST(WriteFirst, OnceTheRingOfAWindowHasWrappedEveryLongerStepIsWrong) {
  const Stream stream(60, 13, DType::F32, 1.0F);
  for (int64_t offset = 8; offset < 24; ++offset) {
    for (int64_t query_len = 2; query_len <= 8 - offset % 8; ++query_len) {
      WriteFirstRing broken(8, 8);
      while (broken.offset() < offset) broken.step(stream, 1);
      EXPECT_GT(max_difference(broken.step(stream, query_len), oracle(stream, offset, query_len, 8)), 0.1)
          << "offset " << offset << " Q " << query_len;
    }
  }
}

TEST(WriteFirst, GuardIsKeyedOnARingState) {
  EXPECT_NO_THROW(check_write_first(1, true));
  EXPECT_NO_THROW(check_write_first(512, false));
  EXPECT_TRUE(guard_refuses(2));
  EXPECT_THROW(check_write_first(0, false), Error);
}

TEST(WriteFirst, SpanIdentitySaysWhenARingIsLargeEnough) {
  // Far from the start, a step loses keys exactly if its visible span does not fit the capacity.
  for (int64_t capacity = 4; capacity <= 20; ++capacity) {
    for (int64_t query_len = 1; query_len <= 12; ++query_len) {
      EXPECT_EQ(write_first_loses_keys(1000, query_len, capacity, 4),
                ring::visible_span<int64_t>(4, query_len) > capacity);
    }
  }
}

}  // namespace
}  // namespace slipring::test
