// What a client holds of its request: events in order, from the engine's thread to the client's.
#include <utility>

#include <slipring/scheduler.h>

namespace slipring {

std::optional<GenerationEvent> Generation::next(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, timeout, [this] { return !events_.empty() || done_; });
  if (!events_.empty()) {
    GenerationEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  if (last_) return std::exchange(last_, std::nullopt);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return std::nullopt;
}

bool Generation::done() const {
  const std::lock_guard lock(mutex_);
  return done_ && events_.empty() && !last_ && !error_;
}

void Generation::push(GenerationEvent event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  news_.notify_all();
}

void Generation::finish(GenerationEvent last) noexcept {
  const std::lock_guard lock(mutex_);
  last_ = std::move(last);
  done_ = true;
  news_.notify_all();
}

void Generation::fail(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
  done_ = true;
  news_.notify_all();
}

}  // namespace slipring
