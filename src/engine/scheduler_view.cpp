// How requests end, and what the scheduler shows of itself.
#include <slipring/scheduler.h>

#include "engine/running.h"

namespace slipring {

void Scheduler::fail(Running& running) noexcept {
  if (running.over) return;
  running.over = true;
  {
    const std::lock_guard lock(mutex_);
    ++view_.failed;
    ++leaving_;  // before the client hears of it, who may come back at once
  }
  running.generation->fail(current_error());
}

void Scheduler::end(Running& running, FinishReason reason) noexcept {
  GenerationEvent last;
  SequenceView was;
  try {
    if (reason != FinishReason::cancelled) last.text = running.output->finish();
    if (running.output->stopped() && reason != FinishReason::cancelled) reason = FinishReason::stop;
    was = view_of(running);
  } catch (...) {
    fail(running);
    return;
  }
  last.finish = reason;
  running.over = true;
  running.finish = reason;
  {
    const std::lock_guard lock(mutex_);
    view_.last = std::move(was);
    ++(reason == FinishReason::cancelled ? view_.cancelled : view_.finished);
    ++leaving_;  // before the client hears of it, who may come back at once
  }
  running.generation->finish(std::move(last));
}

SequenceView Scheduler::view_of(Running& running) const {
  SequenceView one;
  one.request = running.id;
  one.length = running.length();
  one.drafting = running.drafts() != nullptr;
  one.proposed = running.speculation.proposed;
  one.accepted = running.speculation.accepted;
  one.prompt_tokens = running.prompt_length();
  one.reused_tokens = running.generation->reused_tokens();
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
  try {
    for (const auto& running : running_) {
      SequenceView one = view_of(*running);
      bytes += one.kv_bytes;
      sequences.push_back(std::move(one));
    }
  } catch (const std::bad_alloc&) {
    sequences.clear();  // the page draws nothing for a moment; the requests go on
  }
  const std::lock_guard lock(mutex_);
  ++view_.steps;
  view_.write_first = write_first;
  view_.step_seconds = seconds;
  view_.step_tokens = tokens;
  view_.kv_bytes = bytes;
  view_.sequences = std::move(sequences);
  view_.prefixes = store_.stats();
}

}  // namespace slipring
