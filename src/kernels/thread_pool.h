// Threads that run one kernel at a time, together with the caller.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/read_ahead.h"

namespace slipring {

/// A fixed team: the calling thread and threads() - 1 workers. Workers spin for a short while after a job, since the
/// next one of a decode step follows within microseconds, then sleep, so that an idle process burns no core. Threads:
/// parallel_for() may be called from one thread at a time; nested calls run on the caller alone. Exceptions: a task
/// must not throw (kernels do not).
class ThreadPool {
 public:
  /// @param threads team size including the caller, 1 to 256; 0 means the number of usable cores
  /// @throws Error{invalid_argument} outside that range, or if SLIPRING_TARGET names no target (targets.h); Error{io}
  /// if the system starts no more threads
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept;

  /// Calls task(i, worker) for every i in [0, count), each exactly once, and returns when all have returned.
  /// `worker` is in [0, threads()) and no two concurrent calls share one: it indexes scratch memory. Which worker gets
  /// which i is not fixed, so a task's result must not depend on it. `task` is called by reference, never copied.
  template <class Task>
  void parallel_for(int64_t count, const Task& task) {
    run(
        count, [](const void* context, int64_t i, int worker) { (*static_cast<const Task*>(context))(i, worker); },
        &task);
  }

  /// Says that the next large job's worker i will read from starts[i] on: a worker with nothing to do brings the
  /// beginning of that into its cache meanwhile. A hint only; addresses need not be valid.
  /// @param starts  [threads()], or empty: nothing is known
  void will_read(std::span<const uint8_t* const> starts) noexcept;
  /// The order in which the jobs of this pool read their matrices.
  ReadAhead& read_ahead() noexcept;
  /// Which of `count` items worker `worker` begins with.
  int64_t first_item(int64_t count, int worker) const noexcept;

 private:
  using Call = void (*)(const void* context, int64_t i, int worker);
  void run(int64_t count, Call call, const void* context);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slipring
