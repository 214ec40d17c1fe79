// One pass over the weights for one or more sequences: plan, compute, commit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "engine/worker.h"
#include "models/decoder.h"

namespace slipring {

/// One sequence's part of a step.
struct StepPart {
  Sequence* sequence = nullptr;
  std::span<const TokenId> tokens;  ///< >= 1
  LogitRows logits = LogitRows::last;
  /// False keeps the keys and values aside until Step::commit(): verify of drafts. True commits all of them.
  bool commit = true;
};

/// Runs a step when constructed; its results live as long as it does. A step whose parts each hold one token that is
/// committed takes the write-first path, any other reads before it writes; the bits are the same.
///
/// Nothing of a sequence changes unless the whole step succeeds: on an exception every cache is as it was.
/// @pre no sequence appears twice; within a part no ring wraps if it is committed (plan_steps() sees to that; commit()
/// of a
///      kept step may wrap, it writes twice then)
/// Threads: the worker's; one step at a time on a worker.
class Step {
 public:
  /// @param taps  layers whose outputs are wanted, ascending
  /// @throws Error{invalid_argument} for a token outside the vocabulary, Error{out_of_memory}
  Step(const Decoder& decoder, Worker& worker, std::span<const StepPart> parts, std::span<const int> taps = {});
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// Logits [vocab_size] of row `row` of a part's wanted rows (row 0 for LogitRows::last).
  std::span<const float> logits(size_t part, int64_t row = 0) const;
  /// Hidden states [tokens, hidden_size] of a part after the tapped layer number `tap` of the list.
  std::span<const float> tapped(size_t part, size_t tap) const;
  /// For parts with commit = false: writes the first `count` tokens and drops the rest. At most once a part.
  /// @throws Error{invalid_argument} unless 0 <= count <= tokens, Error{out_of_memory}; nothing has been written then
  void commit(size_t part, int64_t count);

 private:
  void run(const Decoder& decoder, std::span<const int> taps);
  void reserve(size_t part, int64_t count);
  void write(size_t part, int64_t count);
  /// The caches as they were before the step, memory reserved for it included.
  void give_back(size_t part) noexcept;
  void roll_back() noexcept;

  Worker& worker_;
  std::vector<StepPart> parts_;
  std::vector<StepSequence> sequences_;
  std::vector<TokenId> tokens_;
  std::vector<int64_t> first_row_;    // of each part, among all tokens
  std::vector<int64_t> first_logit_;  // of each part, among the logit rows
  Value logits_;
  int64_t vocab_size_ = 0;
  int64_t hidden_size_ = 0;
};

}  // namespace slipring
