#include <algorithm>
#include <fmt/format.h>

#include <slipring/error.h>
#include <slipring/scheduler.h>
#include <slipring/step_plan.h>

#include "engine/step.h"
#include "engine/text_output.h"

namespace slipring {
namespace {

void check_option(bool sound, const char* name, const char* expected, int64_t got) {
  if (sound) return;
  throw Error(ErrorCode::invalid_argument,
              {.where = fmt::format("scheduler option {}", name), .expected = expected, .got = std::to_string(got)});
}

}  // namespace

// ---- Generation

std::optional<GenerationEvent> Generation::next(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, timeout, [this] { return !events_.empty() || done_; });
  if (!events_.empty()) {
    GenerationEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return std::nullopt;
}

bool Generation::done() const {
  const std::lock_guard lock(mutex_);
  return done_ && events_.empty() && !error_;
}

void Generation::push(GenerationEvent event) {
  const std::lock_guard lock(mutex_);
  done_ = event.finish.has_value();
  events_.push_back(std::move(event));
  news_.notify_all();
}

void Generation::fail(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
  done_ = true;
  news_.notify_all();
}

// ---- Scheduler

struct Scheduler::Running {
  Running(Waiting waiting, const Model& model, DType kv_dtype)
      : id(waiting.id),
        request(std::move(waiting.request)),
        generation(std::move(waiting.generation)),
        sequence(make_sequence(model.spec().layers, kv_dtype)),
        sampler(request.options.sampling, model.spec().vocab_size),
        output(std::make_unique<TextOutput>(model.shared_tokenizer(), request.options.stop)),
        history(request.prompt) {}

  bool prefilling() const { return sequence.length() < static_cast<int64_t>(request.prompt.size()); }

  int64_t id;
  GenerationRequest request;
  std::shared_ptr<Generation> generation;
  Sequence sequence;
  Sampler sampler;
  std::unique_ptr<TextOutput> output;
  std::vector<TokenId> history;  // prompt and output, for the penalties
  int64_t generated = 0;
  TokenId next_token = 0;  // drawn, not yet in the caches
  bool over = false;
  // This step's part.
  std::span<const TokenId> tokens;
  int64_t step_offset = 0;
  int64_t step_tokens = 0;
};

Scheduler::Scheduler(std::shared_ptr<const Model> model, const SchedulerOptions& options)
    : model_(std::move(model)), options_(options) {
  check_option(options.max_running >= 1 && options.max_running <= 256, "max_running", "1 to 256", options.max_running);
  check_option(options.max_queued >= 0 && options.max_queued <= 100'000, "max_queued", "0 to 100000",
               options.max_queued);
  check_option(options.mixed_prefill >= 1, "mixed_prefill", "at least 1 token", options.mixed_prefill);
  worker_ = make_worker(options.session.threads);
  // A session checks the other options, and knows the context that follows from them.
  const Session probe(model_, options.session, worker_);
  options_.session.context = probe.context();
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
  const Sampler checked(request.options.sampling, model_->spec().vocab_size);
  auto generation = std::make_shared<Generation>();
  generation->prompt_tokens_ = count;
  if (request.options.max_tokens == 0) {
    GenerationEvent nothing;
    nothing.finish = FinishReason::length;
    generation->push(std::move(nothing));
    return generation;
  }
  const std::lock_guard lock(mutex_);
  // Places that are free count as room: the queue is for what cannot start at once.
  const auto waiting = static_cast<int64_t>(queue_.size());
  if (closed_ || waiting >= options_.max_queued + std::max<int64_t>(0, options_.max_running - view_.running)) {
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
    drop_cancelled();
    admit();
    if (!running_.empty()) step();
    drop_cancelled();
  }
  for (const auto& running : running_) end(*running, FinishReason::cancelled);
  running_.clear();
  const std::lock_guard lock(mutex_);
  for (const Waiting& waiting : queue_) {
    GenerationEvent last;
    last.finish = FinishReason::cancelled;
    waiting.generation->push(std::move(last));
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
      next.generation->push(std::move(last));
      continue;
    }
    const auto generation = next.generation;
    try {
      running_.push_back(std::make_unique<Running>(std::move(next), *model_, options_.session.kv_dtype));
    } catch (...) {
      generation->fail(std::current_exception());
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
  if (running_.empty()) {
    view_.sequences.clear();
    view_.kv_bytes = 0;
    wake_.notify_all();
  }
}

// Decodes first, one token each; then prefills, from the one whose turn it is.
void Scheduler::step() {
  std::vector<Running*> parts_of;
  std::vector<Running*> prefills;
  for (const auto& running : running_) (running->prefilling() ? prefills : parts_of).push_back(running.get());
  for (Running* running : parts_of) running->tokens = {&running->next_token, 1};
  int64_t budget = parts_of.empty() ? options_.session.chunk : std::min(options_.mixed_prefill, options_.session.chunk);
  if (!prefills.empty()) {
    turn_ = (turn_ + 1) % prefills.size();
    std::rotate(prefills.begin(), prefills.begin() + static_cast<std::ptrdiff_t>(turn_), prefills.end());
  }
  for (size_t i = 0; i < prefills.size() && budget > 0; ++i) {
    Running& running = *prefills[i];
    const auto left = static_cast<int64_t>(prefills.size() - i);
    const int64_t share = std::max<int64_t>(1, budget / left);
    const int64_t offset = running.sequence.length();
    const int64_t missing = static_cast<int64_t>(running.request.prompt.size()) - offset;
    const int64_t count = std::min(missing, longest_step(offset, share, running.sequence.ring_capacities));
    running.tokens = std::span(running.request.prompt).subspan(static_cast<size_t>(offset), static_cast<size_t>(count));
    budget -= count;
    parts_of.push_back(&running);
  }

  std::vector<StepPart> parts;
  int64_t tokens = 0;
  bool write_first = true;
  for (Running* running : parts_of) {
    const auto count = static_cast<int64_t>(running->tokens.size());
    const bool completes = running->sequence.length() + count >= static_cast<int64_t>(running->request.prompt.size());
    running->step_offset = running->sequence.length();
    running->step_tokens = count;
    tokens += count;
    write_first = write_first && count == 1;
    parts.push_back({.sequence = &running->sequence,
                     .tokens = running->tokens,
                     .logits = completes ? LogitRows::last : LogitRows::none});
  }
  const auto start = std::chrono::steady_clock::now();
  int64_t prompt_tokens = 0;
  int64_t generated = 0;
  try {
    const Step done(model_->decoder(), *worker_, parts);
    for (size_t i = 0; i < parts_of.size(); ++i) {
      Running& running = *parts_of[i];
      if (running.generated == 0) prompt_tokens += running.step_tokens;
      if (parts[i].logits == LogitRows::none) continue;
      try {
        after_step(running, done.logits(i));
        ++generated;
      } catch (...) {
        running.generation->fail(std::current_exception());
        running.over = true;
        const std::lock_guard lock(mutex_);
        ++view_.failed;
      }
    }
  } catch (...) {
    // The step as a whole failed and changed nothing. Whose fault it was is not known: all of its requests hear of it.
    for (Running* running : parts_of) {
      running->generation->fail(std::current_exception());
      running->over = true;
    }
    const std::lock_guard lock(mutex_);
    view_.failed += static_cast<int64_t>(parts_of.size());
  }
  {
    const std::lock_guard lock(mutex_);
    view_.prompt_tokens += prompt_tokens;
    view_.generated_tokens += generated;
  }
  refresh_view(write_first, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), tokens);
}

void Scheduler::after_step(Running& running, std::span<const float> logits) {
  const TokenId token = running.sampler.pick(logits, running.history);
  running.sampler.advance();
  const auto& ends = running.request.end_ids;
  if (!running.request.options.ignore_end && std::find(ends.begin(), ends.end(), token) != ends.end()) {
    end(running, FinishReason::end_of_turn);
    return;
  }
  ++running.generated;
  running.history.push_back(token);
  running.next_token = token;
  if (!emit(running, token, logits)) {
    end(running, FinishReason::stop);
  } else if (running.generated == running.request.options.max_tokens || running.sequence.length() >= context() - 1) {
    end(running, FinishReason::length);
  }
}

// False once a stop string appeared.
bool Scheduler::emit(Running& running, TokenId token, std::span<const float> logits) {
  GenerationEvent event;
  event.token = token;
  const Tokenizer& tokenizer = model_->tokenizer();
  if (running.request.report_control && tokenizer.is_control(token)) {
    // No stop string reaches across a control token: what was held back is certain now.
    event.text = running.output->finish();
    event.control = tokenizer.token_text(token);
    if (!running.output->stopped()) {
      running.output = std::make_unique<TextOutput>(model_->shared_tokenizer(), running.request.options.stop);
    }
  } else {
    event.text = running.output->add(token);
  }
  if (running.request.logprobs) {
    event.logprob = {token, logprob(logits, token)};
    if (*running.request.logprobs > 0) event.alternatives = top_logprobs(logits, *running.request.logprobs);
  }
  const bool going = !running.output->stopped();
  running.generation->push(std::move(event));
  return going;
}

void Scheduler::end(Running& running, FinishReason reason) {
  GenerationEvent last;
  if (reason != FinishReason::cancelled) last.text = running.output->finish();
  if (running.output->stopped() && reason != FinishReason::cancelled) reason = FinishReason::stop;
  last.finish = reason;
  running.over = true;
  SequenceView was = view_of(running);
  {
    const std::lock_guard lock(mutex_);
    view_.last = std::move(was);
    ++(reason == FinishReason::cancelled ? view_.cancelled : view_.finished);
  }
  running.generation->push(std::move(last));
}

SequenceView Scheduler::view_of(const Running& running) const {
  SequenceView one;
  one.request = running.id;
  one.length = running.sequence.length();
  one.prompt_tokens = static_cast<int64_t>(running.request.prompt.size());
  one.step_offset = running.step_offset;
  one.step_tokens = running.step_tokens;
  one.prefilling = running.prefilling();
  one.kv_bytes = bytes_held(running.sequence);
  one.kv_bytes_without_rings = kv_bytes_without_rings(model_->spec(), one.length, options_.session.kv_dtype);
  for (const auto& cache : running.sequence.caches) one.first_held.push_back(cache->first_held());
  return one;
}

void Scheduler::refresh_view(bool write_first, double seconds, int64_t tokens) {
  std::vector<SequenceView> sequences;
  int64_t bytes = 0;
  for (const auto& running : running_) {
    SequenceView one = view_of(*running);
    bytes += one.kv_bytes;
    sequences.push_back(std::move(one));
  }
  const std::lock_guard lock(mutex_);
  ++view_.steps;
  view_.write_first = write_first;
  view_.step_seconds = seconds;
  view_.step_tokens = tokens;
  view_.kv_bytes = bytes;
  view_.sequences = std::move(sequences);
}

}  // namespace slipring
