// A scheduler's step: who takes part with which tokens, and what becomes of the results.
#include <algorithm>

#include <slipring/scheduler.h>
#include <slipring/step_plan.h>

#include "engine/running.h"
#include "engine/speculation.h"
#include "engine/step.h"

namespace slipring {

// Decodes first, each its last token and perhaps guesses; then prefills, from the one whose turn it is.
void Scheduler::step() {
  std::vector<Running*> running_parts;
  for (const auto& running : running_) {
    if (running->prefilling()) continue;
    try {
      plan_decode(*running);
      running_parts.push_back(running.get());
    } catch (...) {
      fail(*running);
    }
  }
  plan_prefills(running_parts, !running_parts.empty());
  if (running_parts.empty()) return;  // all failed

  std::vector<StepPart> parts;
  int64_t tokens = 0;
  bool write_first = true;
  for (Running* running : running_parts) {
    running->step_offset = running->length();
    running->step_tokens = static_cast<int64_t>(running->tokens.size());
    tokens += running->step_tokens;
    write_first = write_first && running->step_tokens == 1;
    const bool completes = running->step_offset + running->step_tokens >= running->prompt_length();
    parts.push_back({.sequence = &running->sequence(),
                     .tokens = running->tokens,
                     .logits = !running->guesses.empty() ? LogitRows::all
                               : completes               ? LogitRows::last
                                                         : LogitRows::none});
  }
  const std::span<const int> taps = !running_parts.empty() && running_parts[0]->drafts() != nullptr
                                        ? running_parts[0]->drafts()->taps()
                                        : std::span<const int>{};
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
    if (running->over || running->drafts() == nullptr) continue;
    try {
      running->drafts()->settle();
    } catch (...) {
      // Work that can wait: propose() does it, or fails the request.
    }
  }
  for (Running* running : running_parts) keep_prefix(*running);
  refresh_view(write_first, seconds(), tokens);
}

void Scheduler::plan_decode(Running& running) {
  running.tokens = {running.history.back()};
  running.guesses.clear();
  if (!running.chooser) return;
  const int64_t block = running.request.options.speculation.block;
  running.wanted = std::min(block > 0 ? block - 1 : running.chooser->next(), context() - 2 - running.length());
  const int64_t limit = running.request.options.max_tokens;
  if (limit >= 0) running.wanted = std::min(running.wanted, limit - running.generated - 1);
  running.propose_seconds = 0.0;
  if (running.wanted <= 0) {
    running.wanted = 0;
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  running.guesses = running.drafts()->propose(running.history, running.wanted);
  running.guesses.resize(std::min(running.guesses.size(), static_cast<size_t>(running.wanted)));
  keep_valid_guesses(running.guesses, model_->spec().vocab_size);
  running.propose_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  running.tokens.insert(running.tokens.end(), running.guesses.begin(), running.guesses.end());
}

void Scheduler::plan_prefills(std::vector<Running*>& parts, bool streaming) {
  std::vector<Running*> prefills;
  for (const auto& running : running_) {
    try {
      if (running->prefilling() && begin(*running)) prefills.push_back(running.get());
    } catch (...) {
      fail(*running);
    }
  }
  if (prefills.empty()) return;
  turn_ = (turn_ + 1) % prefills.size();
  std::rotate(prefills.begin(), prefills.begin() + static_cast<std::ptrdiff_t>(turn_), prefills.end());
  int64_t budget = streaming ? std::min(options_.mixed_prefill, options_.session.chunk) : options_.session.chunk;
  for (size_t i = 0; i < prefills.size() && budget > 0; ++i) {
    Running& running = *prefills[i];
    const int64_t share = std::max<int64_t>(1, budget / static_cast<int64_t>(prefills.size() - i));
    const int64_t offset = running.length();
    const int64_t missing = running.snapshot_at - offset;
    const int64_t count = std::min(missing, longest_step(offset, share, running.sequence().ring_capacities));
    const auto first = running.request.prompt.begin() + static_cast<std::ptrdiff_t>(offset);
    running.guesses.clear();
    budget -= count;
    try {
      running.tokens.assign(first, first + static_cast<std::ptrdiff_t>(count));
      parts.push_back(&running);
    } catch (...) {
      fail(running);
    }
  }
}

void Scheduler::take_results(Step& step, size_t part, Running& running) {
  const auto prompt = running.prompt_length();
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
    record(running.speculation, running.guesses.size(), static_cast<size_t>(committed) - 1);
  } else if (running.step_offset + running.step_tokens >= prompt) {
    const auto row = step.logits(part);
    running.history.push_back(running.sampler.pick(row, running.history));
    running.sampler.advance();
    drawn = 1;
    finish = take(running, running.history.back(), row, running.step_offset + running.step_tokens);
  }
  step.reserve(part, committed);
  if (running.drafts() != nullptr) {
    std::vector<std::span<const float>> hidden;
    const auto width = static_cast<size_t>(model_->spec().hidden_size);
    for (size_t tap = 0; tap < running.drafts()->taps().size(); ++tap) {
      hidden.push_back(step.tapped(part, tap).first(static_cast<size_t>(committed) * width));
    }
    running.drafts()->observe(std::span(running.tokens).first(static_cast<size_t>(committed)), hidden);
  }
  step.commit(part, committed);
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

}  // namespace slipring
