#include "kernels/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <sched.h>
#include <string>
#include <thread>
#include <vector>

#include <slipring/error.h>

#include "kernels/targets.h"

namespace slipring {
namespace {

constexpr int kMaxThreads = 256;
constexpr auto kSpinTime = std::chrono::microseconds(50);
/// Chunks a thread on average: small enough that a late thread costs little, large enough that claims cost nothing.
constexpr int64_t kChunksPerThread = 8;
constexpr uint64_t kRemainingMask = 0xFFFFFFFFU;

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// Which pool this thread works for at the moment and under which number: a nested call runs inline with it.
thread_local const void* current_pool = nullptr;
thread_local int current_worker = 0;

}  // namespace

/// One job at a time. `claim` holds the job's number (high half) and how many of its chunks nobody has taken yet (low
/// half). A thread takes a chunk by lowering it with compare-and-swap. The other fields belong to the job that `claim`
/// names; they may be read only while holding a chunk, because the job cannot end, and so they cannot change, before
/// that chunk is counted in `finished`. A thread that comes late finds nothing to take and touches nothing.
struct ThreadPool::Impl {
  std::atomic<uint64_t> claim{0};
  std::atomic<int64_t> count{0};
  std::atomic<int64_t> chunk{1};
  std::atomic<int64_t> chunks{0};
  std::atomic<Call> call{nullptr};
  std::atomic<const void*> context{nullptr};
  alignas(64) std::atomic<int64_t> finished{0};

  alignas(64) std::atomic<bool> stop{false};
  std::atomic<int> sleepers{0};
  std::mutex mutex;
  std::condition_variable wake;
  bool spin = true;  ///< false with more threads than cores: there a spinning thread keeps a working one out
  std::vector<std::thread> workers;

  bool has_work() const { return (claim.load(std::memory_order_seq_cst) & kRemainingMask) != 0; }

  /// Takes and runs chunks of the current job until none is left.
  void work(int worker) {
    uint64_t seen = claim.load(std::memory_order_acquire);
    while ((seen & kRemainingMask) != 0) {
      if (!claim.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      const int64_t size = chunk.load(std::memory_order_relaxed);
      const int64_t taken = chunks.load(std::memory_order_relaxed) - static_cast<int64_t>(seen & kRemainingMask);
      const int64_t end = std::min(count.load(std::memory_order_relaxed), (taken + 1) * size);
      const Call function = call.load(std::memory_order_relaxed);
      const void* argument = context.load(std::memory_order_relaxed);
      for (int64_t i = taken * size; i < end; ++i) function(argument, i, worker);
      finished.fetch_add(1, std::memory_order_acq_rel);
      seen = claim.load(std::memory_order_acquire);
    }
  }

  /// Returns when there is a chunk to take (true) or the pool ends (false).
  bool wait_for_work() {
    if (spin) {
      const auto give_up = std::chrono::steady_clock::now() + kSpinTime;
      do {
        for (int i = 0; i < 64; ++i) {
          if (has_work()) return true;
          pause();
        }
      } while (std::chrono::steady_clock::now() < give_up);
    } else {
      for (int i = 0; i < 4; ++i) {
        if (has_work()) return true;
        std::this_thread::yield();
      }
    }
    std::unique_lock lock(mutex);
    // Counted before the last look at `claim`, as run() looks at `sleepers` after it has set `claim`: one sees the
    // other.
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    wake.wait(lock, [this] { return has_work() || stop.load(std::memory_order_relaxed); });
    sleepers.fetch_sub(1, std::memory_order_relaxed);
    return !stop.load(std::memory_order_relaxed);
  }

  void worker_main(int worker) {
    current_pool = this;
    current_worker = worker;
    while (wait_for_work()) work(worker);
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  if (threads < 0 || threads > kMaxThreads) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "threads",
                 .expected = "1 to " + std::to_string(kMaxThreads) + ", or 0 for all cores",
                 .got = std::to_string(threads),
                 .advice = {}});
  }
  current_target();  // every kernel needs a pool, so this applies SLIPRING_TARGET before the first of them is chosen
  const int cores = usable_cores();
  if (threads == 0) threads = std::min(cores, kMaxThreads);
  impl_->spin = threads <= cores;
  impl_->workers.reserve(static_cast<size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    impl_->workers.emplace_back([impl = impl_.get(), worker] { impl->worker_main(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop.store(true, std::memory_order_relaxed);
  }
  impl_->wake.notify_all();
  for (std::thread& worker : impl_->workers) worker.join();
}

int ThreadPool::threads() const noexcept {
  return static_cast<int>(impl_->workers.size()) + 1;
}

void ThreadPool::run(int64_t count, Call call, const void* context) {
  Impl& impl = *impl_;
  const bool nested = current_pool == &impl;
  if (count <= 1 || nested || impl.workers.empty()) {
    const int worker = nested ? current_worker : 0;
    for (int64_t i = 0; i < count; ++i) call(context, i, worker);
    return;
  }
  const int64_t chunk = std::max<int64_t>(1, count / (threads() * kChunksPerThread));
  const int64_t chunks = (count + chunk - 1) / chunk;
  impl.count.store(count, std::memory_order_relaxed);
  impl.chunk.store(chunk, std::memory_order_relaxed);
  impl.chunks.store(chunks, std::memory_order_relaxed);
  impl.call.store(call, std::memory_order_relaxed);
  impl.context.store(context, std::memory_order_relaxed);
  impl.finished.store(0, std::memory_order_relaxed);
  const uint64_t number = (impl.claim.load(std::memory_order_relaxed) >> 32) + 1;
  impl.claim.store(number << 32 | static_cast<uint64_t>(chunks), std::memory_order_seq_cst);
  if (impl.sleepers.load(std::memory_order_seq_cst) > 0) {
    { const std::lock_guard lock(impl.mutex); }  // a worker between its last look and its sleep has the lock
    impl.wake.notify_all();
  }

  const void* outer_pool = current_pool;
  const int outer_worker = current_worker;
  current_pool = &impl;
  current_worker = 0;
  impl.work(0);
  for (int spins = 0; impl.finished.load(std::memory_order_acquire) < chunks; ++spins) {
    if (impl.spin && spins < 4096) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
  current_pool = outer_pool;
  current_worker = outer_worker;
}

}  // namespace slipring
