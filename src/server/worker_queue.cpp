#include "server/worker_queue.h"

#include <system_error>

#include <slipring/error.h>

namespace slipring::server {

WorkerQueue::WorkerQueue(int threads) {
  threads_.reserve(static_cast<size_t>(threads));
  try {
    while (threads_.size() < static_cast<size_t>(threads)) threads_.emplace_back([this] { work(); });
  } catch (const std::exception& error) {  // system_error, or bad_alloc
    const size_t started = threads_.size();
    shutdown();
    throw Error(ErrorCode::out_of_memory,
                {.where = "serve",
                 .expected = std::to_string(threads) + " threads for connections",
                 .got = std::to_string(started) + " that the system would start (" + error.what() + ")",
                 .advice = "lower --parallel and --queue, or raise the limits of memory and processes"});
  }
}

WorkerQueue::~WorkerQueue() {
  shutdown();
}

void WorkerQueue::enqueue(std::function<void()> task) {
  {
    const std::scoped_lock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  woken_.notify_one();
}

void WorkerQueue::shutdown() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  woken_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WorkerQueue::work() noexcept {
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    try {
      task();
    } catch (...) {
      // What fails outside of a handler, as memory for a header does, ends that connection and no other.
    }
  }
}

}  // namespace slipring::server
