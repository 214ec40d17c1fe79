// Requests come in, wait, get a place and leave it. What a step does is in scheduler_step.cpp.
#include <algorithm>
#include <fmt/format.h>

#include <slipring/error.h>
#include <slipring/scheduler.h>
#include <slipring/stop_strings.h>

#include "engine/check_option.h"
#include "engine/running.h"
#include "engine/speculation.h"

namespace slipring {
Scheduler::Scheduler(std::shared_ptr<const Model> model, const SchedulerOptions& options)
    : model_(std::move(model)), options_(options), store_(model_->spec(), options.prefixes) {
  check_option(options.max_running >= 1 && options.max_running <= 256, "scheduler option max_running", "1 to 256",
               options.max_running);
  check_option(options.max_queued >= 0 && options.max_queued <= 100'000, "scheduler option max_queued", "0 to 100000",
               options.max_queued);
  check_option(options.mixed_prefill >= 1, "scheduler option mixed_prefill", "at least 1 token", options.mixed_prefill);
  worker_ = make_worker(options.session.threads);
  // A session checks the other options, and knows the context that follows from them.
  const Session probe(model_, options.session, worker_);
  options_.session.context = probe.context();
  // Made here, so that a drafter that does not fit is refused at once.
  if (options_.make_drafts) max_drafts_ = options_.make_drafts(worker_)->max_drafts();
  thread_ = std::thread([this] { run(); });
}

Scheduler::~Scheduler() {
  drain(std::chrono::milliseconds(0));
  thread_.join();
}

std::shared_ptr<Generation> Scheduler::submit(GenerationRequest request) {
  const auto count = static_cast<int64_t>(request.prompt.size());
  if (count == 0) {
    throw Error(ErrorCode::invalid_argument, {.where = "prompt", .expected = "at least one token", .got = "none"});
  }
  // The context must hold the prompt and the token that is drawn after it.
  if (count >= context()) {
    throw Error(ErrorCode::context_full, {.where = "prompt",
                                          .expected = fmt::format("at most {} tokens", context() - 1),
                                          .got = fmt::format("{} tokens", count),
                                          .advice = "shorten the prompt, or start with a larger context"});
  }
  for (const TokenId id : request.prompt) {
    if (id >= 0 && id < model_->spec().vocab_size) continue;
    throw Error(ErrorCode::invalid_argument, {.where = "prompt token id",
                                              .expected = fmt::format("0 to {}", model_->spec().vocab_size - 1),
                                              .got = std::to_string(id)});
  }
  // What generate() refuses, refused here: the engine's thread has nobody to tell.
  const Sampler checked_sampling(request.options.sampling, model_->spec().vocab_size);
  const StopStrings checked_stops(request.options.stop);
  check_block(request.options.speculation, max_drafts_);
  auto generation = std::make_shared<Generation>();
  generation->prompt_tokens_ = count;
  if (request.options.max_tokens == 0) {
    GenerationEvent nothing;
    nothing.finish = FinishReason::length;
    generation->finish(std::move(nothing));
    return generation;
  }
  const std::lock_guard lock(mutex_);
  // Places that are free count as room: the queue is for what cannot start at once.
  const auto waiting = static_cast<int64_t>(queue_.size());
  if (closed_ ||
      waiting >= options_.max_queued + std::max<int64_t>(0, options_.max_running - view_.running + leaving_)) {
    ++view_.rejected;
    return nullptr;
  }
  queue_.push_back({next_id_++, std::move(request), generation});
  view_.queued = static_cast<int64_t>(queue_.size());
  wake_.notify_all();
  return generation;
}

void Scheduler::drain(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  closed_ = true;
  wake_.notify_all();
  wake_.wait_for(lock, patience, [this] { return queue_.empty() && view_.running == 0; });
  stopping_ = true;
  wake_.notify_all();
}

SchedulerView Scheduler::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

void Scheduler::run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty() || !running_.empty(); });
      if (stopping_) break;
    }
    try {
      drop_cancelled();
      admit();
      if (!running_.empty()) step();
    } catch (...) {
      // No memory for the scheduler's own lists. Whatever it was, this thread must live, or the server is dead.
      for (const auto& running : running_) fail(*running);
    }
    drop_cancelled();
  }
  for (const auto& running : running_) end(*running, FinishReason::cancelled);
  running_.clear();
  const std::lock_guard lock(mutex_);
  for (const Waiting& waiting : queue_) {
    GenerationEvent last;
    last.finish = FinishReason::cancelled;
    waiting.generation->finish(std::move(last));
  }
  queue_.clear();
}

void Scheduler::admit() {
  while (static_cast<int64_t>(running_.size()) < options_.max_running) {
    Waiting next;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) break;
      next = std::move(queue_.front());
      queue_.pop_front();
      view_.queued = static_cast<int64_t>(queue_.size());
      if (!next.generation->cancelled()) ++view_.running;
    }
    if (next.generation->cancelled()) {
      GenerationEvent last;
      last.finish = FinishReason::cancelled;
      next.generation->finish(std::move(last));
      continue;
    }
    const auto generation = next.generation;
    try {
      running_.push_back(
          std::make_unique<Running>(std::move(next), model_, options_.session, options_.make_drafts, worker_));
    } catch (...) {
      generation->fail(current_error());
      const std::lock_guard lock(mutex_);
      --view_.running;
      ++view_.failed;
    }
  }
}

void Scheduler::drop_cancelled() {
  for (const auto& running : running_) {
    if (!running->over && running->generation->cancelled()) end(*running, FinishReason::cancelled);
  }
  running_.erase(std::remove_if(running_.begin(), running_.end(), [](const auto& running) { return running->over; }),
                 running_.end());
  const std::lock_guard lock(mutex_);
  view_.running = static_cast<int64_t>(running_.size());
  leaving_ = 0;
  if (running_.empty()) {
    view_.sequences.clear();
    view_.kv_bytes = 0;
    wake_.notify_all();
  }
}

}  // namespace slipring
