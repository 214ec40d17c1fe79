#include <algorithm>
#include <fmt/format.h>

#include <slipring/error.h>
#include <slipring/session.h>
#include <slipring/step_plan.h>

#include "engine/check_option.h"
#include "engine/step.h"

namespace slipring {
std::shared_ptr<Worker> make_worker(int threads) {
  return std::make_shared<Worker>(threads);
}

Session::Session(std::shared_ptr<const Model> model, const SessionOptions& options)
    : Session(std::move(model), options, make_worker(options.threads)) {}

Session::Session(std::shared_ptr<const Model> model, const SessionOptions& options, std::shared_ptr<Worker> worker)
    : model_(std::move(model)), options_(options), worker_(std::move(worker)) {
  check_option(options.chunk >= 1, "session option chunk", "at least 1 token", options.chunk);
  check_option(options.context >= 0, "session option context", "0 (the model's own) or a number of tokens",
               options.context);
  if (options_.context == 0) options_.context = model_->spec().context_length;
  check_option(options_.context <= model_->spec().context_length, "session option context",
               fmt::format("at most the model's {} tokens", model_->spec().context_length), options_.context);
  sequence_ = std::make_unique<Sequence>(make_sequence(model_->spec().layers, options.kv_dtype));
}

Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

int64_t Session::length() const noexcept {
  return sequence_->length();
}
int64_t Session::kv_bytes_held() const noexcept {
  return bytes_held(*sequence_);
}
const std::vector<TokenId>& Session::tokens() const noexcept {
  return sequence_->tokens;
}

void Session::clear() {
  for (const auto& cache : sequence_->caches) cache->clear();
  sequence_->tokens.clear();
  if (drafts_) drafts_->clear();
}

bool Session::can_truncate(int64_t length) const noexcept {
  return std::all_of(sequence_->caches.begin(), sequence_->caches.end(),
                     [length](const auto& cache) { return cache->can_resume_at(length); });
}

void Session::truncate(int64_t length) {
  if (!can_truncate(length)) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "session",
                 .expected = fmt::format("a length up to {} whose window the rings still hold", this->length()),
                 .got = std::to_string(length),
                 .advice = "restore a snapshot, or clear the session and start again"});
  }
  for (const auto& cache : sequence_->caches) cache->truncate(length);
  sequence_->tokens.resize(static_cast<size_t>(length));
  if (drafts_ && !drafts_->truncate(length)) drafts_->restore(length, {});
}

void Session::check_room(std::span<const TokenId> tokens) const {
  const auto count = static_cast<int64_t>(tokens.size());
  if (count == 0) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "prompt", .expected = "at least one token", .got = "none", .advice = {}});
  }
  if (count > context() - length()) {
    throw Error(ErrorCode::context_full,
                {.where = "context",
                 .expected = fmt::format("at most {}", context()),
                 .got = fmt::format("{} tokens", length() + count),
                 .advice = "shorten the prompt, or ask for a larger context if the model has one"});
  }
  for (const TokenId id : tokens) {
    if (id < 0 || id >= model_->spec().vocab_size) {
      throw Error(ErrorCode::invalid_argument, {.where = "token id",
                                                .expected = fmt::format("0 to {}", model_->spec().vocab_size - 1),
                                                .got = std::to_string(id),
                                                .advice = {}});
    }
  }
}

// All that may fail comes first: the caller's function, memory, the drafts' copy. Then the step is written.
void Session::finish(Step& step, std::span<const TokenId> tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  step.reserve(0, count);
  if (drafts_ && count > 0) {
    std::vector<std::span<const float>> hidden;
    for (size_t tap = 0; tap < drafts_->taps().size(); ++tap) hidden.push_back(step.tapped(0, tap));
    drafts_->observe(tokens, hidden);
  }
  step.commit(0, count);
}

void Session::settle() noexcept {
  if (!drafts_) return;
  try {
    drafts_->settle();
  } catch (...) {
    // Work of the drafts' own that can wait: propose() does it, or says why not.
  }
}

void Session::run(std::span<const TokenId> tokens, LogitRows rows, const std::function<void(const Step&)>& use) {
  {
    const StepPart part{.sequence = sequence_.get(), .tokens = tokens, .logits = rows};
    Step step(model_->decoder(), *worker_, {&part, 1}, drafts_ ? drafts_->taps() : std::span<const int>{});
    use(step);
    finish(step, tokens);
  }
  settle();
}

void Session::verify(std::span<const TokenId> tokens, const std::function<int64_t(const Step&)>& accept) {
  check_room(tokens);
  {
    const StepPart part{.sequence = sequence_.get(), .tokens = tokens, .logits = LogitRows::all};
    Step step(model_->decoder(), *worker_, {&part, 1}, drafts_ ? drafts_->taps() : std::span<const int>{});
    const int64_t accepted = accept(step);
    step.reserve(0, accepted);
    finish(step, tokens.first(static_cast<size_t>(accepted)));
  }
  settle();
}

void Session::attach_drafts(std::unique_ptr<Drafts> drafts) {
  if (length() > 0) {
    throw Error(ErrorCode::invalid_argument, {.where = "drafts",
                                              .expected = "an empty session",
                                              .got = fmt::format("one of {} tokens", length()),
                                              .advice = "attach drafts before the first token"});
  }
  drafts_ = std::move(drafts);
}

namespace {

void ask(const PrefillProgress& progress, const char* what, int64_t done, int64_t total) {
  if (!progress || progress(done, total)) return;
  throw Error(
      ErrorCode::cancelled,
      {.where = what, .expected = {}, .got = fmt::format("stopped after {} of {} tokens", done, total), .advice = {}});
}

}  // namespace

std::span<const float> Session::prefill(std::span<const TokenId> tokens, const PrefillProgress& progress) {
  check_room(tokens);
  const auto total = static_cast<int64_t>(tokens.size());
  int64_t done = 0;
  for (const PlannedStep& planned : plan_steps(length(), total, options_.chunk, sequence_->ring_capacities)) {
    ask(progress, "prompt", done, total);
    const bool last = done + planned.count == total;
    run(tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(planned.count)),
        last ? LogitRows::last : LogitRows::none, [&](const Step& step) {
          if (last) logits_.assign(step.logits(0).begin(), step.logits(0).end());
        });
    done += planned.count;
  }
  if (progress) progress(total, total);
  return logits_;
}

std::span<const float> Session::decode(TokenId token) {
  check_room({&token, 1});
  run({&token, 1}, LogitRows::last,
      [&](const Step& step) { logits_.assign(step.logits(0).begin(), step.logits(0).end()); });
  return logits_;
}

void Session::score(std::span<const TokenId> tokens, const LogitSink& sink, const PrefillProgress& progress) {
  check_room(tokens);
  const auto total = static_cast<int64_t>(tokens.size());
  int64_t done = 0;
  for (const PlannedStep& planned : plan_steps(length(), total, options_.chunk, sequence_->ring_capacities)) {
    ask(progress, "scoring", done, total);
    run(tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(planned.count)), LogitRows::all,
        [&](const Step& step) {
          for (int64_t i = 0; i < planned.count; ++i) sink(done + i, step.logits(0, i));
        });
    done += planned.count;
  }
  if (progress) progress(total, total);
}

}  // namespace slipring
