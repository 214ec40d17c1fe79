// The threads that serve connections: all of them, or a clear error before the first client is let in.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <httplib.h>
#include <mutex>
#include <thread>
#include <vector>

namespace slipring::server {

/// Threads: enqueue() and shutdown() by one at a time.
class WorkerQueue final : public httplib::TaskQueue {
 public:
  /// Starts `threads` of them.
  /// @throws Error{out_of_memory} if the system does not start them all; those that did start have ended then
  explicit WorkerQueue(int threads);
  /// As shutdown().
  ~WorkerQueue() override;
  WorkerQueue(const WorkerQueue&) = delete;
  WorkerQueue& operator=(const WorkerQueue&) = delete;

  void enqueue(std::function<void()> task) override;
  /// Returns once every task that was given is done.
  void shutdown() noexcept override;

 private:
  void work() noexcept;

  std::mutex mutex_;
  std::condition_variable woken_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace slipring::server
