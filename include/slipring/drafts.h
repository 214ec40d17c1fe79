// Drafts: guesses of the next tokens, which the model verifies many at a time. They change the speed, never the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <slipring/model.h>

namespace slipring {

class Worker;

/// Where guesses come from. One object follows one sequence: it is told every token that enters the session's caches,
/// and asked for guesses of what follows. A guess may be anything, ids outside the vocabulary included: what does not
/// equal the model's own choice is rejected. Threads: one at a time, the session's.
class Drafts {
 public:
  virtual ~Drafts() = default;
  virtual std::string_view name() const noexcept = 0;

  /// Target layers whose outputs observe() wants, ascending; valid as long as the object is.
  virtual std::span<const int> taps() const noexcept { return {}; }
  /// Most guesses that propose() can make at once.
  virtual int64_t max_drafts() const noexcept = 0;
  /// `tokens` are about to be appended to the session, which does not fail any more. If this throws they are not: then
  /// the drafts must be as they were.
  /// @param hidden  one span a tapped layer, each [tokens, hidden_size]; copied
  virtual void observe(std::span<const TokenId> tokens, std::span<const std::span<const float>> hidden) = 0;
  /// Called when no step is under way, after one or more observe(): the place for work of its own that can wait. What
  /// it throws is dropped, and the drafts must be as they were: propose() tries again and may say so.
  virtual void settle() {}
  /// At most `count` guesses for the tokens that follow `history`, whose last token has not been observed yet.
  virtual std::vector<TokenId> propose(std::span<const TokenId> history, int64_t count) = 0;
  /// The session was cleared. Must not throw.
  virtual void clear() = 0;
  /// The session went back to its first `length` tokens. False where that cannot be followed: then restore(length, {})
  /// is called. Must not throw.
  virtual bool truncate(int64_t length) = 0;
  /// What the drafts know of the text so far, for a snapshot; empty where the text itself is enough.
  virtual std::vector<std::byte> save() const { return {}; }
  /// The session became another one, of `length` tokens. Without a state of their own kind, drafts that need one guess
  /// nothing until clear().
  /// @param state  what save() gave at that length, or empty: then it must not throw
  /// @throws Error{mismatch, bad_file} for another drafter's state; nothing has changed then
  virtual void restore(int64_t length, std::span<const std::byte> state);
  /// Bytes of keys and values that the drafts hold.
  virtual int64_t kv_bytes_held() const noexcept { return 0; }
};

/// Guesses by looking up the last few tokens in the text so far and continuing as it did there: no second model.
/// Source: Saxena, Prompt Lookup Decoding (2023).
/// @param longest   most tokens that are looked up together, 1 to 16; shorter runs are tried after longer ones
std::unique_ptr<Drafts> make_ngram_drafts(int longest = 4);

/// A DFlash drafter loaded from a GGUF file or a Hugging Face folder, checked against the target by name: hidden size,
/// tapped layers, mask token and, where the drafter's files have a vocabulary, every token of it.
/// @param worker  the session's
/// @throws Error{mismatch} naming what differs; else as Model::load
std::unique_ptr<Drafts> load_dflash_drafts(const std::filesystem::path& path, std::shared_ptr<const Model> target,
                                           std::shared_ptr<Worker> worker);

/// Makes the guesser of one sequence, on the worker that runs the sequence's steps. Threads: one at a time.
using MakeDrafts = std::function<std::unique_ptr<Drafts>(std::shared_ptr<Worker>)>;
/// The same for many sequences: the drafter's weights are loaded once, and every sequence's drafts share them.
/// @param threads  that pack the weights; 0: all usable cores
/// @throws as load_dflash_drafts
MakeDrafts load_dflash_drafter(const std::filesystem::path& path, std::shared_ptr<const Model> target, int threads = 0);

/// How many guesses a verify step carries.
struct SpeculationOptions {
  /// Tokens of a block, the certain one included, as DFlash counts: 2 to max_drafts() + 1. 0: automatic, from measured
  /// acceptance and step times, down to none where guesses do not pay.
  int64_t block = 0;
};

/// What speculation did.
struct SpeculationStats {
  int64_t steps = 0;     ///< model passes of the decode phase
  int64_t proposed = 0;  ///< guesses verified
  int64_t accepted = 0;  ///< guesses that were right
  /// For each place in the block: guesses verified there, and those accepted.
  std::vector<int64_t> proposed_at, accepted_at;
  double propose_seconds = 0.0;  ///< time spent on guessing
};

}  // namespace slipring
