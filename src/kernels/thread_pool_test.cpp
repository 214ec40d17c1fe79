#include "kernels/thread_pool.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include <slipring/error.h>

namespace slipring {
namespace {

TEST(ThreadPool, CallsEveryIndexExactlyOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t count : {0, 1, 2, 3, 15, 16, 17, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
      pool.parallel_for(count, [&](int64_t i, int) { calls[static_cast<size_t>(i)].fetch_add(1); });
      for (const auto& number : calls) EXPECT_EQ(number.load(), 1);
    }
  }
}

// Not atomic on purpose: the thread sanitizer reports it if a job's writes were not visible to the caller and the next
// job.
TEST(ThreadPool, OneJobsWritesAreTheNextOnesReads) {
  ThreadPool pool(3);
  std::vector<int64_t> values(64, 0);
  for (int round = 0; round < 2000; ++round) {
    pool.parallel_for(64, [&](int64_t i, int) { values[static_cast<size_t>(i)] += 1; });
    pool.parallel_for(
        32, [&](int64_t i, int) { std::swap(values[static_cast<size_t>(i)], values[static_cast<size_t>(63 - i)]); });
  }
  for (const int64_t value : values) EXPECT_EQ(value, 2000);
}

TEST(ThreadPool, NoTwoConcurrentCallsShareAWorkerNumber) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> busy(4);
  std::atomic<int> clashes{0};
  pool.parallel_for(200, [&](int64_t, int worker) {
    ASSERT_LT(worker, 4);
    if (busy[static_cast<size_t>(worker)].fetch_add(1) != 0) clashes.fetch_add(1);
    std::this_thread::yield();
    busy[static_cast<size_t>(worker)].fetch_sub(1);
  });
  EXPECT_EQ(clashes.load(), 0);
}

TEST(ThreadPool, NestedCallsRunOnTheirCallerUnderItsNumber) {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  std::atomic<int> strangers{0};
  pool.parallel_for(8, [&](int64_t, int outer) {
    pool.parallel_for(8, [&](int64_t, int inner) {
      calls.fetch_add(1);
      if (inner != outer) strangers.fetch_add(1);
    });
  });
  EXPECT_EQ(calls.load(), 64);
  EXPECT_EQ(strangers.load(), 0);
}

TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // far beyond the spinning time
    std::atomic<int> arrived{0};
    // Both items wait for each other, so this ends only if two threads take part.
    pool.parallel_for(2, [&](int64_t, int) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived.load(), 2);
  }
}

TEST(ThreadPool, RefusesSizesOutsideItsRange) {
  for (const int threads : {-1, 257}) {
    try {
      const ThreadPool pool(threads);
      FAIL() << "no error for " << threads;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(error.info().got, std::to_string(threads));
    }
  }
  EXPECT_GE(ThreadPool(0).threads(), 1);
}

}  // namespace
}  // namespace slipring
