#include <algorithm>
#include <limits>
#include <string>

#include <slipring/error.h>
#include <slipring/prefix_store.h>

namespace slipring {
namespace {

constexpr int64_t kEveryWithoutWindows = 256;

void check(bool sound, const char* name, int64_t got) {
  if (sound) return;
  throw Error(ErrorCode::invalid_argument, {.where = std::string("prefix store option ") + name,
                                            .expected = "0 or more",
                                            .got = std::to_string(got),
                                            .advice = {}});
}

/// Tokens that two texts have in common at their start.
int64_t common(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

int64_t part_bytes(const KVBlock& part) {
  return part.k().bytes() + part.v().bytes();
}

/// What a snapshot holds besides keys and values.
int64_t own_bytes(const Snapshot& snapshot) {
  return static_cast<int64_t>(snapshot.tokens().size() * sizeof(TokenId) + snapshot.drafts_state().size());
}

}  // namespace

PrefixStore::PrefixStore(const ModelSpec& spec, const PrefixStoreOptions& options)
    : budget_(options.budget_bytes), every_(options.every) {
  check(budget_ >= 0, "budget_bytes", budget_);
  check(every_ >= 0, "every", every_);
  if (every_ == 0) every_ = largest_window(spec);
  if (every_ == 0) every_ = kEveryWithoutWindows;
}

PrefixMatch PrefixStore::find(std::span<const TokenId> prompt) {
  const std::lock_guard lock(mutex_);
  auto best = entries_.end();
  int64_t length = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const int64_t usable = std::min(common(prompt, (*entry)->tokens()), static_cast<int64_t>(prompt.size()) - 1);
    if (usable <= length || !(*entry)->can_resume_at(usable)) continue;
    best = entry;
    length = usable;
  }
  if (best == entries_.end()) {
    ++stats_.misses;
    return {};
  }
  ++stats_.hits;
  stats_.reused_tokens += length;
  entries_.splice(entries_.begin(), entries_, best);
  return {.snapshot = entries_.front(), .length = length};
}

void PrefixStore::count_in(const Snapshot& snapshot) {
  size_t counted = 0;
  try {
    for (const Snapshot::Layer& layer : snapshot.layers()) {
      for (const KVBlock& part : layer.parts) {
        if (uses_[part.k().raw()]++ == 0) stats_.bytes += part_bytes(part);
        ++counted;
      }
    }
  } catch (...) {
    count_out(snapshot, counted);
    throw;
  }
  stats_.bytes += own_bytes(snapshot);
}

void PrefixStore::count_out(const Snapshot& snapshot, size_t parts) noexcept {
  for (const Snapshot::Layer& layer : snapshot.layers()) {
    for (const KVBlock& part : layer.parts) {
      if (parts-- == 0) return;
      const auto use = uses_.find(part.k().raw());
      if (--use->second > 0) continue;
      stats_.bytes -= part_bytes(part);
      uses_.erase(use);
    }
  }
}

void PrefixStore::remove(Entries::iterator entry) {
  stats_.bytes -= own_bytes(**entry);
  count_out(**entry, std::numeric_limits<size_t>::max());
  entries_.erase(entry);
}

void PrefixStore::put(std::shared_ptr<const Snapshot> snapshot) {
  if (!snapshot || snapshot->length() == 0) return;
  const std::lock_guard lock(mutex_);
  const auto same = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const auto& entry) { return entry->tokens() == snapshot->tokens(); });
  if (snapshot->bytes() <= budget_) {
    entries_.push_front(std::move(snapshot));
    try {
      count_in(*entries_.front());
    } catch (...) {
      entries_.pop_front();
      throw;
    }
  }
  // From here on nothing fails.
  if (same != entries_.end()) remove(same);
  while (stats_.bytes > budget_ && !entries_.empty()) {
    remove(std::prev(entries_.end()));
    ++stats_.evicted;
  }
  stats_.snapshots = static_cast<int64_t>(entries_.size());
}

int64_t PrefixStore::next_point(int64_t length, int64_t prompt_length) const noexcept {
  const int64_t to_next = every_ - length % every_;
  return prompt_length - length < to_next ? prompt_length : length + to_next;
}

void PrefixStore::clear() {
  const std::lock_guard lock(mutex_);
  while (!entries_.empty()) remove(entries_.begin());
  stats_.snapshots = 0;
}

PrefixStoreStats PrefixStore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

ReusedPrefill prefill(Session& session, std::span<const TokenId> prompt, PrefixStore& store,
                      const PrefillProgress& progress) {
  const PrefixMatch match = store.find(prompt);
  if (match.snapshot) {
    match.snapshot->restore(session, match.length);
  } else {
    session.clear();
  }
  const auto total = static_cast<int64_t>(prompt.size());
  ReusedPrefill result{.logits = {}, .reused = match.length, .processed = total - match.length};
  std::shared_ptr<const Snapshot> base = match.snapshot;
  int64_t done = match.length;
  do {
    const int64_t end = std::max(store.next_point(done, total), done);
    const auto part = prompt.subspan(static_cast<size_t>(done), static_cast<size_t>(end - done));
    const auto offset_progress = [&](int64_t part_done, int64_t) {
      return !progress || progress(done + part_done, total);
    };
    result.logits = session.prefill(part, progress ? PrefillProgress(offset_progress) : PrefillProgress());
    done = end;
    base = Snapshot::take(session, {}, base);
    store.put(base);
  } while (done < total);
  return result;
}

}  // namespace slipring
