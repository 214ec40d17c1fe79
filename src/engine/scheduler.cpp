#include <algorithm>
#include <fmt/format.h>

#include <slipring/error.h>
#include <slipring/scheduler.h>
#include <slipring/step_plan.h>

#include "engine/block_chooser.h"
#include "engine/sequence.h"
#include "engine/speculation.h"
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
  Running(Waiting waiting, const std::shared_ptr<const Model>& model, const SessionOptions& options,
          std::shared_ptr<Worker> worker)
      : id(waiting.id),
        request(std::move(waiting.request)),
        generation(std::move(waiting.generation)),
        session(model, options, std::move(worker)),
        sampler(request.options.sampling, model->spec().vocab_size),
        output(std::make_unique<TextOutput>(model->shared_tokenizer(), request.options.stop)),
        history(request.prompt) {}

  Sequence& sequence() { return session.sequence(); }
  int64_t length() const { return session.length(); }
  bool prefilling() const { return length() < static_cast<int64_t>(request.prompt.size()); }

  int64_t id;
  GenerationRequest request;
  std::shared_ptr<Generation> generation;
  Session session;
  Sampler sampler;
  std::unique_ptr<TextOutput> output;
  std::vector<TokenId> history;  // prompt and output, the token drawn last included
  int64_t generated = 0;
  bool over = false;
  // Speculation
  std::unique_ptr<Drafts> drafts;
  std::optional<BlockChooser> chooser;
  SpeculationStats speculation;
  // This step's part: of the prompt, or the last token and guesses.
  std::vector<TokenId> tokens;
  std::vector<TokenId> guesses;
  int64_t wanted = 0;
  double propose_seconds = 0.0;
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
  // Made here, so that a drafter that does not fit is refused at once.
  if (options_.make_drafts) idle_drafts_.push_back(options_.make_drafts(worker_));
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
      auto running = std::make_unique<Running>(std::move(next), model_, options_.session, worker_);
      if (options_.make_drafts) {
        if (idle_drafts_.empty()) idle_drafts_.push_back(options_.make_drafts(worker_));
        running->drafts = std::move(idle_drafts_.back());
        idle_drafts_.pop_back();
        running->chooser.emplace(running->drafts->max_drafts());
      }
      running_.push_back(std::move(running));
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
  for (const auto& running : running_) {
    if (!running->over || running->drafts == nullptr) continue;
    running->drafts->clear();
    idle_drafts_.push_back(std::move(running->drafts));
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

// Decodes first, each its last token and perhaps guesses; then prefills, from the one whose turn it is.
void Scheduler::step() {
  std::vector<Running*> running_parts;
  for (const auto& running : running_) {
    if (running->prefilling()) continue;
    plan_decode(*running);
    running_parts.push_back(running.get());
  }
  plan_prefills(running_parts, !running_parts.empty());

  std::vector<StepPart> parts;
  int64_t tokens = 0;
  bool write_first = true;
  for (Running* running : running_parts) {
    running->step_offset = running->length();
    running->step_tokens = static_cast<int64_t>(running->tokens.size());
    tokens += running->step_tokens;
    write_first = write_first && running->step_tokens == 1;
    const bool completes =
        running->step_offset + running->step_tokens >= static_cast<int64_t>(running->request.prompt.size());
    parts.push_back({.sequence = &running->sequence(),
                     .tokens = running->tokens,
                     .logits = !running->guesses.empty() ? LogitRows::all
                               : completes               ? LogitRows::last
                                                         : LogitRows::none,
                     .commit = running->guesses.empty()});
  }
  const std::span<const int> taps =
      !running_parts.empty() && running_parts[0]->drafts ? running_parts[0]->drafts->taps() : std::span<const int>{};
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  try {
    Step done(model_->decoder(), *worker_, parts, taps);
    const double step_seconds = seconds();
    for (size_t i = 0; i < running_parts.size(); ++i) {
      Running& running = *running_parts[i];
      try {
        take_results(done, i, running);
        if (running.chooser && running.generated > 1) {
          running.chooser->observe(running.wanted, static_cast<int64_t>(running.guesses.size()),
                                   running.length() - running.step_offset - 1, step_seconds, running.propose_seconds);
        }
      } catch (...) {
        fail(running);
      }
    }
  } catch (...) {
    // The step as a whole failed and changed nothing. Whose fault it was is not known: all of its requests hear of it.
    for (Running* running : running_parts) fail(*running);
  }
  for (Running* running : running_parts) {
    if (running->over || running->drafts == nullptr) continue;
    try {
      running->drafts->settle();
    } catch (...) {
      fail(*running);
    }
  }
  refresh_view(write_first, seconds(), tokens);
}

void Scheduler::plan_decode(Running& running) {
  running.tokens = {running.history.back()};
  running.guesses.clear();
  if (!running.chooser) return;
  running.wanted = std::min(running.chooser->next(), context() - 2 - running.length());
  const int64_t limit = running.request.options.max_tokens;
  if (limit >= 0) running.wanted = std::min(running.wanted, limit - running.generated - 1);
  running.propose_seconds = 0.0;
  if (running.wanted <= 0) {
    running.wanted = 0;
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  running.guesses = running.drafts->propose(running.history, running.wanted);
  running.guesses.resize(std::min(running.guesses.size(), static_cast<size_t>(running.wanted)));
  keep_valid_guesses(running.guesses, model_->spec().vocab_size);
  running.propose_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  running.tokens.insert(running.tokens.end(), running.guesses.begin(), running.guesses.end());
}

void Scheduler::plan_prefills(std::vector<Running*>& parts, bool streaming) {
  std::vector<Running*> prefills;
  for (const auto& running : running_) {
    if (running->prefilling()) prefills.push_back(running.get());
  }
  if (prefills.empty()) return;
  turn_ = (turn_ + 1) % prefills.size();
  std::rotate(prefills.begin(), prefills.begin() + static_cast<std::ptrdiff_t>(turn_), prefills.end());
  int64_t budget = streaming ? std::min(options_.mixed_prefill, options_.session.chunk) : options_.session.chunk;
  for (size_t i = 0; i < prefills.size() && budget > 0; ++i) {
    Running& running = *prefills[i];
    const int64_t share = std::max<int64_t>(1, budget / static_cast<int64_t>(prefills.size() - i));
    const int64_t offset = running.length();
    const int64_t missing = static_cast<int64_t>(running.request.prompt.size()) - offset;
    const int64_t count = std::min(missing, longest_step(offset, share, running.sequence().ring_capacities));
    const auto first = running.request.prompt.begin() + static_cast<std::ptrdiff_t>(offset);
    running.tokens.assign(first, first + static_cast<std::ptrdiff_t>(count));
    running.guesses.clear();
    budget -= count;
    parts.push_back(&running);
  }
}

void Scheduler::take_results(Step& step, size_t part, Running& running) {
  const auto prompt = static_cast<int64_t>(running.request.prompt.size());
  const bool was_prompt = running.step_offset < prompt;
  std::optional<FinishReason> finish;
  int64_t committed = running.step_tokens;
  int64_t drawn = 0;
  if (!running.guesses.empty()) {
    const auto stop = [&](TokenId token) {
      const auto row = step.logits(part, drawn++);
      finish = take(running, token, row, running.step_offset + drawn);
      return finish.has_value();
    };
    committed = static_cast<int64_t>(
        draw_from_verified(step, part, running.guesses, running.sampler, running.history, stop).size());
    step.commit(part, committed);
    record(running.speculation, running.guesses.size(), static_cast<size_t>(committed) - 1);
  } else if (running.step_offset + running.step_tokens >= prompt) {
    const auto row = step.logits(part);
    running.history.push_back(running.sampler.pick(row, running.history));
    running.sampler.advance();
    drawn = 1;
    finish = take(running, running.history.back(), row, running.length());
  }
  if (running.drafts) {
    std::vector<std::span<const float>> hidden;
    const auto width = static_cast<size_t>(model_->spec().hidden_size);
    for (size_t tap = 0; tap < running.drafts->taps().size(); ++tap) {
      hidden.push_back(step.tapped(part, tap).first(static_cast<size_t>(committed) * width));
    }
    running.drafts->observe(std::span(running.tokens).first(static_cast<size_t>(committed)), hidden);
  }
  {
    const std::lock_guard lock(mutex_);
    if (was_prompt) view_.prompt_tokens += running.step_tokens;
    view_.generated_tokens += drawn;
  }
  if (finish) end(running, *finish);
}

// One drawn token, with `length` positions in the caches in front of it; the reason if it was the last.
std::optional<FinishReason> Scheduler::take(Running& running, TokenId token, std::span<const float> logits,
                                            int64_t length) {
  const auto& ends = running.request.end_ids;
  if (!running.request.options.ignore_end && std::find(ends.begin(), ends.end(), token) != ends.end()) {
    return FinishReason::end_of_turn;
  }
  ++running.generated;
  if (!emit(running, token, logits)) return FinishReason::stop;
  if (running.generated == running.request.options.max_tokens || length >= context() - 1) return FinishReason::length;
  return std::nullopt;
}

void Scheduler::fail(Running& running) {
  if (running.over) return;
  running.generation->fail(std::current_exception());
  running.over = true;
  const std::lock_guard lock(mutex_);
  ++view_.failed;
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

SequenceView Scheduler::view_of(Running& running) const {
  SequenceView one;
  one.request = running.id;
  one.length = running.length();
  one.drafting = running.drafts != nullptr;
  one.proposed = running.speculation.proposed;
  one.accepted = running.speculation.accepted;
  one.prompt_tokens = static_cast<int64_t>(running.request.prompt.size());
  one.step_offset = running.step_offset;
  one.step_tokens = running.step_tokens;
  one.prefilling = running.prefilling();
  one.kv_bytes = running.session.kv_bytes_held();
  one.kv_bytes_without_rings = kv_bytes_without_rings(model_->spec(), one.length, options_.session.kv_dtype);
  for (const auto& cache : running.session.sequence().caches) one.first_held.push_back(cache->first_held());
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
