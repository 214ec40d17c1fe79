// The threads and scratch memory that run steps.
#pragma once

#include "kernels/thread_pool.h"
#include "ops/native_ops.h"

namespace slipring {

/// Threads: one step at a time.
class Worker {
 public:
  /// @throws as ThreadPool
  explicit Worker(int threads) : pool(threads), ops(pool) {}

  ThreadPool pool;
  NativeOps ops;
};

}  // namespace slipring
