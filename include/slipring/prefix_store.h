// Prompts that were computed before: a new one that begins the same way starts from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include <slipring/session.h>
#include <slipring/snapshot.h>

namespace slipring {

struct PrefixStoreOptions {
  int64_t budget_bytes = int64_t{256} << 20;  ///< memory for snapshots; 0 keeps none
  /// Tokens between the snapshots inside a prompt, for prompts that are edited in the middle: 0 for the model's largest
  /// window. A ring cannot go back by more than one token, so without them an edit would mean starting again.
  int64_t every = 0;
};

/// Where a prompt can start.
struct PrefixMatch {
  std::shared_ptr<const Snapshot> snapshot;  ///< null if nothing fits
  int64_t length = 0;                        ///< tokens to restore: snapshot->restore(session, length); 0 without one
};

/// What the store holds and did.
struct PrefixStoreStats {
  int64_t snapshots = 0;
  int64_t bytes = 0;  ///< of memory; keys that snapshots share count once
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t evicted = 0;
  int64_t reused_tokens = 0;  ///< of all hits together
};

/// Snapshots within a byte budget; the least recently used go first. Snapshots of one store belong to one model and KV
/// type; find() of another's would be refused when restored.
///
///   const PrefixMatch match = store.find(prompt);
///   if (match.snapshot) match.snapshot->restore(session, match.length);
///   ... compute prompt[match.length ...]; at each store.next_point() and at the end: store.put(Snapshot::take(...))
///
/// Threads: all functions from any thread.
class PrefixStore {
 public:
  /// @throws Error{invalid_argument} for a negative budget or distance
  PrefixStore(const ModelSpec& spec, const PrefixStoreOptions& options = {});

  /// The snapshot that saves the most of `prompt`: never past the first token that differs, and never all of it, so
  /// that at least one token is computed and gives logits. The whole prompt, if known, costs one token.
  PrefixMatch find(std::span<const TokenId> prompt);
  /// Keeps a snapshot; one of the same tokens is replaced. Larger than the whole budget: not kept.
  /// @throws std::bad_alloc; the store is then as it was
  void put(std::shared_ptr<const Snapshot> snapshot);
  /// The next length after `length` at which a prompt of `prompt_length` tokens wants a snapshot: the next multiple of
  /// `every`, or its end.
  int64_t next_point(int64_t length, int64_t prompt_length) const noexcept;
  /// Forgets all snapshots.
  void clear();
  PrefixStoreStats stats() const;
  int64_t every() const noexcept { return every_; }
  int64_t budget() const noexcept { return budget_; }  ///< bytes

 private:
  using Entries = std::list<std::shared_ptr<const Snapshot>>;  // most recently used first
  void count_in(const Snapshot& snapshot);
  /// @param parts  as many of the snapshot's parts as were counted in
  void count_out(const Snapshot& snapshot, size_t parts) noexcept;
  void remove(Entries::iterator entry);

  mutable std::mutex mutex_;
  int64_t budget_;
  int64_t every_;
  Entries entries_;
  std::unordered_map<const void*, int64_t> uses_;  // of each part's keys, which snapshots may share
  PrefixStoreStats stats_;
};

/// A prompt computed with the store's help.
struct ReusedPrefill {
  std::span<const float> logits;  ///< after the last token [vocab_size], valid until the session's next call
  int64_t reused = 0;             ///< tokens that were not computed
  int64_t processed = 0;          ///< tokens that were; together: the prompt
};

/// Makes `session` the state after `prompt`, whatever it held before: restores the best snapshot, computes the rest,
/// and leaves snapshots in the store for prompts to come.
/// @throws as Session::prefill
ReusedPrefill prefill(Session& session, std::span<const TokenId> prompt, PrefixStore& store,
                      const PrefillProgress& progress = {});

}  // namespace slipring
