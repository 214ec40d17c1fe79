#include <algorithm>
#include <fmt/format.h>

#include <slipring/error.h>
#include <slipring/session.h>
#include <slipring/step_plan.h>

#include "engine/step.h"

namespace slipring {
namespace {

void check_option(bool sound, const char* name, const char* expected, int64_t got) {
  if (sound) return;
  throw Error(ErrorCode::invalid_argument, {.where = fmt::format("session option {}", name),
                                            .expected = expected,
                                            .got = std::to_string(got),
                                            .advice = {}});
}

}  // namespace

std::shared_ptr<Worker> make_worker(int threads) {
  return std::make_shared<Worker>(threads);
}

Session::Session(std::shared_ptr<const Model> model, const SessionOptions& options)
    : Session(std::move(model), options, make_worker(options.threads)) {}

Session::Session(std::shared_ptr<const Model> model, const SessionOptions& options, std::shared_ptr<Worker> worker)
    : model_(std::move(model)), options_(options), worker_(std::move(worker)) {
  check_option(options.chunk >= 1, "chunk", "at least 1 token", options.chunk);
  check_option(options.context >= 0, "context", "0 (the model's own) or a number of tokens", options.context);
  if (options_.context == 0) options_.context = model_->spec().context_length;
  check_option(options_.context <= model_->spec().context_length, "context",
               fmt::format("at most the model's {} tokens", model_->spec().context_length).c_str(), options_.context);
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

std::span<const float> Session::prefill(std::span<const TokenId> tokens, const PrefillProgress& progress) {
  check_room(tokens);
  const auto total = static_cast<int64_t>(tokens.size());
  int64_t done = 0;
  for (const PlannedStep& planned : plan_steps(length(), total, options_.chunk, sequence_->ring_capacities)) {
    const int64_t count = planned.count;
    if (progress && !progress(done, total)) {
      throw Error(ErrorCode::cancelled, {.where = "prompt",
                                         .expected = {},
                                         .got = fmt::format("stopped after {} of {} tokens", done, total),
                                         .advice = {}});
    }
    const StepPart part{.sequence = sequence_.get(),
                        .tokens = tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(count)),
                        .logits = done + count == total ? LogitRows::last : LogitRows::none};
    const Step step(model_->decoder(), *worker_, {&part, 1});
    done += count;
    if (done == total) {
      const auto row = step.logits(0);
      logits_.assign(row.begin(), row.end());
    }
  }
  if (progress) progress(total, total);
  return logits_;
}

std::span<const float> Session::decode(TokenId token) {
  check_room({&token, 1});
  const StepPart part{.sequence = sequence_.get(), .tokens = {&token, 1}, .logits = LogitRows::last};
  const Step step(model_->decoder(), *worker_, {&part, 1});
  const auto row = step.logits(0);
  logits_.assign(row.begin(), row.end());
  return logits_;
}

void Session::score(std::span<const TokenId> tokens, const LogitSink& sink, const PrefillProgress& progress) {
  check_room(tokens);
  const auto total = static_cast<int64_t>(tokens.size());
  int64_t done = 0;
  for (const PlannedStep& planned : plan_steps(length(), total, options_.chunk, sequence_->ring_capacities)) {
    const int64_t count = planned.count;
    if (progress && !progress(done, total)) {
      throw Error(ErrorCode::cancelled, {.where = "scoring",
                                         .expected = {},
                                         .got = fmt::format("stopped after {} of {} tokens", done, total),
                                         .advice = {}});
    }
    const StepPart part{.sequence = sequence_.get(),
                        .tokens = tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(count)),
                        .logits = LogitRows::all};
    const Step step(model_->decoder(), *worker_, {&part, 1});
    for (int64_t i = 0; i < count; ++i) sink(done + i, step.logits(0, i));
    done += count;
  }
  if (progress) progress(total, total);
}

}  // namespace slipring
