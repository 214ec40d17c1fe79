// Compression of programs: weights in blocks of 8 or 4 bits, and prefill derived from main where that is right.
#pragma once

#include <map>
#include <memory>

#include "kernels/thread_pool.h"
#include "program/program.h"

namespace slipring {

/// Quantises linear maps once each, whoever asks. Embedding tables are never asked for: they keep their type.
/// Threads: one at a time.
class WeightQuantiser {
 public:
  /// @param dtype Q8_0 or Q4_0, else Error{invalid_argument}
  WeightQuantiser(DType dtype, ThreadPool& pool);

  /// The same map with its matrix quantised; the name and the bias stay. A matrix whose rows are not whole blocks of 32
  /// stays as it is. @throws Error{non_finite} for a weight that is not a number
  std::shared_ptr<const Linear> operator()(const std::shared_ptr<const Linear>& linear);

 private:
  DType dtype_;
  ThreadPool& pool_;
  std::map<const Linear*, std::shared_ptr<const Linear>> done_;
};

/// Graph mode, first half: the weights of a traced program's linear maps, in place.
void quantise_weights(Program& program, WeightQuantiser& quantiser);

/// Graph mode, second half: prefill as main without its head (everything that only the logits need).
/// A main that slides writes its ring before it reads it, which is right for one token only; as a prefill it would
/// lose keys in silence. So this is for programs without a ring.
/// @throws Error{unsupported} naming the ring if there is one
Program trim_to_prefill(const Program& main);

}  // namespace slipring
