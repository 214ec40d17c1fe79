#include "kernels/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <sched.h>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <slipring/error.h>

#include "kernels/targets.h"

namespace slipring {
namespace {

constexpr int kMaxThreads = 256;
constexpr auto kSpinTime = std::chrono::microseconds(50);
/// An owner takes this part of what is left of its share at a time, so that what is left at the end is small.
constexpr int64_t kOwnersPart = 8;
/// But no less than this part of its whole share: claims must cost nothing beside tiny items.
constexpr int64_t kLeastPart = 64;
/// More items than this are taken in groups, so that a share fits 32 bits.
constexpr int64_t kMostUnits = int64_t{1} << 30;

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

/// What nobody has taken yet of one worker's share: units [next, end), in one word, so that owner and thieves agree on
/// them with one compare-and-swap.
struct Share {
  static constexpr uint64_t pack(int64_t next, int64_t end) {
    return static_cast<uint64_t>(next) << 32 | static_cast<uint64_t>(end);
  }
  static int64_t next(uint64_t word) { return static_cast<int64_t>(word >> 32); }
  static int64_t end(uint64_t word) { return static_cast<int64_t>(word & 0xFFFFFFFFU); }

  alignas(64) std::atomic<uint64_t> word{0};
  std::atomic<const uint8_t*> will_read{nullptr};  ///< where the worker's part of the next large job begins
};

/// Brings the beginning of what a worker will read next into its cache, a little at a time. The addresses are only
/// prefetched, which never faults, so they may be stale.
class IdleReader {
 public:
  explicit IdleReader(const std::vector<Share>& shares, int worker)
      : shares_(shares), worker_(static_cast<size_t>(worker)) {}

  /// Returns false if there is nothing left to do.
  bool step() {
    // First the worker's own part, then those of the others, which find it in this core's cache sooner than in memory.
    for (size_t i = 0; i < std::min(shares_.size(), kParts); ++i) {
      const uint8_t* start = shares_[(worker_ + i) % shares_.size()].will_read.load(std::memory_order_relaxed);
      Part& part = parts_[i];
      if (start != part.start) part = {start, 0};
      if (start == nullptr || part.done >= kIdleBytes) continue;
      for (size_t line = 0; line < kStep; line += 64) __builtin_prefetch(start + part.done + line, 0, 2);
      part.done += kStep;
      return true;
    }
    return false;
  }

 private:
  static constexpr size_t kParts = 2;  ///< own and one neighbour's
  static constexpr size_t kStep = 1024;
  static constexpr size_t kIdleBytes = size_t{128} << 10;  ///< for each part: well below a second-level cache

  struct Part {
    const uint8_t* start = nullptr;
    size_t done = 0;
  };
  const std::vector<Share>& shares_;
  size_t worker_;
  Part parts_[kParts];
};

/// One job at a time. Every worker has a share of neighbouring units, so that it streams through its own part of a
/// matrix; it takes from the front, ever less. Who is done takes the back half of what another one has left. The job's
/// other fields may be read only by who holds units that are not yet counted in `finished`: until they are counted the
/// job cannot end, and so its fields cannot change. A thread that comes late finds nothing to take and touches nothing.
/// (`least` may be read early: a stale one only changes how much is taken.)
struct ThreadPool::Impl {
  explicit Impl(int threads) : shares(static_cast<size_t>(threads)) {}

  std::vector<Share> shares;
  ReadAhead read_ahead;
  std::atomic<int64_t> count{0};
  std::atomic<int64_t> unit{1};   ///< items
  std::atomic<int64_t> least{1};  ///< units that an owner takes at least
  std::atomic<Call> call{nullptr};
  std::atomic<const void*> context{nullptr};
  alignas(64) std::atomic<int64_t> finished{0};  ///< units

  alignas(64) std::atomic<uint64_t> job{0};  ///< the number of the newest
  std::atomic<bool> stop{false};
  std::atomic<int> sleepers{0};
  std::mutex mutex;
  std::condition_variable wake;
  bool spin = true;  ///< false with more threads than cores: there a spinning thread keeps a working one out
  std::vector<std::thread> workers;

  int64_t run_units(int64_t first, int64_t last, int worker) {
    const int64_t size = unit.load(std::memory_order_relaxed);
    const int64_t end = std::min(count.load(std::memory_order_relaxed), last * size);
    const Call function = call.load(std::memory_order_relaxed);
    const void* argument = context.load(std::memory_order_relaxed);
    for (int64_t i = first * size; i < end; ++i) function(argument, i, worker);
    return last - first;
  }

  int64_t work_on_own_share(int worker) {
    std::atomic<uint64_t>& word = shares[static_cast<size_t>(worker)].word;
    int64_t done = 0;
    uint64_t seen = word.load(std::memory_order_acquire);
    while (Share::next(seen) < Share::end(seen)) {
      const int64_t next = Share::next(seen);
      const int64_t end = Share::end(seen);
      const int64_t size =
          std::min(end - next, std::max(least.load(std::memory_order_relaxed), (end - next) / kOwnersPart));
      if (!word.compare_exchange_weak(seen, Share::pack(next + size, end), std::memory_order_acq_rel,
                                      std::memory_order_acquire))
        continue;
      done += run_units(next, next + size, worker);
      seen = word.load(std::memory_order_acquire);
    }
    return done;
  }

  int64_t steal(int worker, std::atomic<uint64_t>& word) {
    int64_t done = 0;
    uint64_t seen = word.load(std::memory_order_acquire);
    while (Share::next(seen) < Share::end(seen)) {
      const int64_t next = Share::next(seen);
      const int64_t end = Share::end(seen);
      const int64_t middle = end - (end - next + 1) / 2;
      if (!word.compare_exchange_weak(seen, Share::pack(next, middle), std::memory_order_acq_rel,
                                      std::memory_order_acquire))
        continue;
      done += run_units(middle, end, worker);
      seen = word.load(std::memory_order_acquire);
    }
    return done;
  }

  /// Takes and runs units of the current job until none is left.
  void work(int worker) {
    int64_t done = work_on_own_share(worker);
    for (size_t i = 1; i < shares.size(); ++i) {
      done += steal(worker, shares[(static_cast<size_t>(worker) + i) % shares.size()].word);
    }
    if (done > 0) finished.fetch_add(done, std::memory_order_acq_rel);
  }

  /// Returns when there is a newer job than `seen` (true) or the pool ends (false).
  bool wait_for_work(uint64_t& seen, IdleReader& reader) {
    const auto has_work = [&] {
      const uint64_t newest = job.load(std::memory_order_seq_cst);
      return std::exchange(seen, newest) != newest;
    };
    if (spin) {
      const auto give_up = std::chrono::steady_clock::now() + kSpinTime;
      do {
        for (int i = 0; i < 64; ++i) {
          if (has_work()) return true;
          if (!reader.step()) pause();
        }
      } while (std::chrono::steady_clock::now() < give_up);
    } else {
      for (int i = 0; i < 4; ++i) {
        if (has_work()) return true;
        std::this_thread::yield();
      }
    }
    std::unique_lock lock(mutex);
    // Counted before the last look at `job`, as run() looks at `sleepers` after it has set `job`: one sees the other.
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    wake.wait(lock, [&] { return has_work() || stop.load(std::memory_order_relaxed); });
    sleepers.fetch_sub(1, std::memory_order_relaxed);
    return !stop.load(std::memory_order_relaxed);
  }

  void worker_main(int worker) {
    current_pool = this;
    current_worker = worker;
    uint64_t seen = 0;
    IdleReader reader(shares, worker);
    while (wait_for_work(seen, reader)) work(worker);
  }

  void end_workers() {
    {
      const std::lock_guard lock(mutex);
      stop.store(true, std::memory_order_relaxed);
    }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool(int threads) {
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
  impl_ = std::make_unique<Impl>(threads);
  impl_->spin = threads <= cores;
  impl_->workers.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int worker = 1; worker < threads; ++worker) {
      impl_->workers.emplace_back([impl = impl_.get(), worker] { impl->worker_main(worker); });
    }
  } catch (const std::system_error& error) {
    impl_->end_workers();
    throw Error(ErrorCode::io, {.where = "threads",
                                .expected = std::to_string(threads) + " of them",
                                .got = "the system starts no more than " + std::to_string(impl_->workers.size() + 1) +
                                       " (" + error.code().message() + ")",
                                .advice = "use fewer, or give the program more memory"});
  }
}

ThreadPool::~ThreadPool() {
  impl_->end_workers();
}

int ThreadPool::threads() const noexcept {
  return static_cast<int>(impl_->workers.size()) + 1;
}

void ThreadPool::will_read(std::span<const uint8_t* const> starts) noexcept {
  for (size_t i = 0; i < impl_->shares.size(); ++i) {
    impl_->shares[i].will_read.store(i < starts.size() ? starts[i] : nullptr, std::memory_order_relaxed);
  }
}

ReadAhead& ThreadPool::read_ahead() noexcept {
  return impl_->read_ahead;
}

int64_t ThreadPool::first_item(int64_t count, int worker) const noexcept {
  return count * worker / threads();
}

void ThreadPool::run(int64_t count, Call call, const void* context) {
  Impl& impl = *impl_;
  const bool nested = current_pool == &impl;
  if (count <= 1 || nested || impl.workers.empty()) {
    const int worker = nested ? current_worker : 0;
    for (int64_t i = 0; i < count; ++i) call(context, i, worker);
    return;
  }
  const int64_t unit = 1 + count / kMostUnits;
  const int64_t units = (count + unit - 1) / unit;
  impl.count.store(count, std::memory_order_relaxed);
  impl.unit.store(unit, std::memory_order_relaxed);
  impl.least.store(std::max<int64_t>(1, units / (threads() * kLeastPart)), std::memory_order_relaxed);
  impl.call.store(call, std::memory_order_relaxed);
  impl.context.store(context, std::memory_order_relaxed);
  impl.finished.store(0, std::memory_order_relaxed);
  for (int64_t worker = 0; worker < threads(); ++worker) {
    const uint64_t share = Share::pack(units * worker / threads(), units * (worker + 1) / threads());
    impl.shares[static_cast<size_t>(worker)].word.store(share, std::memory_order_release);
  }
  impl.job.fetch_add(1, std::memory_order_seq_cst);
  if (impl.sleepers.load(std::memory_order_seq_cst) > 0) {
    { const std::lock_guard lock(impl.mutex); }  // a worker between its last look and its sleep has the lock
    impl.wake.notify_all();
  }

  const void* outer_pool = current_pool;
  const int outer_worker = current_worker;
  current_pool = &impl;
  current_worker = 0;
  impl.work(0);
  for (int spins = 0; impl.finished.load(std::memory_order_acquire) < units; ++spins) {
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
