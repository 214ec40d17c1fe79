// The scheduler and the prefix store: where a prompt starts, and what it leaves for later ones.
#include <algorithm>

#include <slipring/scheduler.h>

#include "engine/running.h"

namespace slipring {
namespace {

// A prompt waits for another one that is being computed only if that saves it so many tokens.
constexpr int64_t kWorthWaiting = 32;

int64_t common(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

// Puts a request's caches where its prompt starts; false if it is to wait.
bool Scheduler::begin(Running& running) {
  if (running.begun) return true;
  running.snapshot_at = running.prompt_length();
  if (store_.budget() == 0) return running.begun = true;
  // Only those that have begun are waited for, so nobody waits in a circle, and all of them get on.
  for (const auto& other : running_) {
    if (other->begun && other->prefilling() && worth_waiting_for(running, *other)) return false;
  }
  const PrefixMatch match = store_.find(running.request.prompt);
  if (match.snapshot) match.snapshot->restore(running.session, match.length);
  running.generation->reused_tokens_ = match.length;
  running.snapshot = match.snapshot;
  running.snapshot_at = store_.next_point(match.length, running.prompt_length());
  return running.begun = true;
}

// Whether `other` will leave a snapshot that `running` can start from, further on than it has come.
bool Scheduler::worth_waiting_for(const Running& running, const Running& other) const {
  const int64_t shared = std::min(common(running.request.prompt, other.request.prompt), running.prompt_length() - 1);
  // A snapshot at the prompt's end can also be resumed one token earlier.
  const bool reaches_end = shared >= other.prompt_length() - 1;
  const int64_t start = reaches_end ? shared : shared - shared % store_.every();
  return start >= kWorthWaiting && start > other.length();
}

// After a step: a snapshot if the prompt has come to a point that wants one, or the reply has ended.
void Scheduler::keep_prefix(Running& running) {
  if (store_.budget() == 0) return;
  const bool point = running.length() == running.snapshot_at;
  const bool ended = running.finish && running.finish != FinishReason::cancelled;
  if (running.over ? !ended : !point) return;
  if (point && running.length() < running.prompt_length()) {
    running.snapshot_at = store_.next_point(running.length(), running.prompt_length());
  }
  if (running.session.kv_bytes_held() > store_.budget()) return;
  try {
    running.snapshot = Snapshot::take(running.session, {}, running.snapshot);
    store_.put(running.snapshot);
  } catch (const std::exception&) {
    // Without memory for a snapshot the request itself goes on.
  }
}

}  // namespace slipring
