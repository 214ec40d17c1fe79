// How many guesses to verify next, from what guesses were worth so far.
#pragma once

#include <cstdint>
#include <vector>

namespace slipring {

/// Expected tokens a second of verifying k guesses: (1 + a1 + a1 a2 + ... ) / (time of a step with k guesses + time of
/// guessing), where a_j is the share of right guesses at place j among those whose predecessors were right. The best k
/// is taken; k = 0 is plain decoding. Times and shares are moving averages of what was measured; sizes that were never
/// tried are estimated from their neighbours. While plain decoding is best, a probe is made now and then, more and more
/// rarely while probes fail, so that a text on which guesses do not pay costs next to nothing. Threads: one at a time.
class BlockChooser {
 public:
  /// @param most  most guesses, >= 1
  explicit BlockChooser(int64_t most);

  /// Guesses to verify in the next step, 0 to most.
  int64_t next();
  /// What a step with `proposed` guesses gave and took.
  /// @param asked  what next() said; guessers may give fewer
  void observe(int64_t asked, int64_t proposed, int64_t accepted, double step_seconds, double propose_seconds);

 private:
  double rate(int64_t guesses) const;
  double step_time(int64_t guesses) const;

  struct Average {
    double value = 0.0;
    double weight = 0.0;
    void add(double x, double memory);
  };
  int64_t most_;
  std::vector<Average> accepted_;  // by place
  std::vector<Average> step_;      // seconds of a step, by guesses
  Average propose_;                // seconds of guessing
  int64_t since_probe_ = 0;
  int64_t probe_every_;
};

}  // namespace slipring
