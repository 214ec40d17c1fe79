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
};

/// Computes a step when constructed; its results live as long as it does, and a part stays only if it is committed:
///
///   Step step(...);             computed
///   step.reserve(0, accepted);  the last thing that may fail
///   step.commit(0, accepted);   written
///
/// Whatever is not committed when the step ends, be it for an exception, leaves its sequence as it was, byte for byte.
/// A step of one token a part takes the write-first path, and only keeps or takes back what it wrote; any other reads
/// before it writes; the bits are the same.
/// @pre no sequence appears twice, and none is touched while the step lives
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
  /// Gets the memory that commit(part, count) needs.
  /// @throws Error{invalid_argument} unless 0 <= count <= tokens, Error{out_of_memory}
  void reserve(size_t part, int64_t count);
  /// Writes the first `count` tokens of a part and drops the rest; may wrap a ring, it writes twice then. At most once
  /// a part. Does not fail. @pre reserve(part, count)
  void commit(size_t part, int64_t count);

 private:
  void run(const Decoder& decoder, std::span<const int> taps);
  /// Takes back what was not committed.
  void end() noexcept;

  Worker& worker_;
  std::vector<StepPart> parts_;
  std::vector<StepSequence> sequences_;
  std::vector<TokenId> tokens_;
  std::vector<int64_t> first_row_;    // of each part, among all tokens
  std::vector<int64_t> first_logit_;  // of each part, among the logit rows
  std::vector<char> committed_;       // of each part: whether
  Value logits_;
  int64_t vocab_size_ = 0;
  int64_t hidden_size_ = 0;
};

}  // namespace slipring
