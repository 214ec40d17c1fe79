// How many guesses to verify next, from what guesses were worth so far.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace slipring {

/// Expected tokens a second of verifying k guesses: (1 + a1 + a1 a2 + ... ) / (time of a step with k guesses + time of
/// guessing), where a_j is the share of right guesses at place j among those whose predecessors were right. The best k
/// is taken; k = 0 is plain decoding. Shares are moving averages; times are medians of the last few, since on a shared
/// machine one step in twenty may take ten times as long. Sizes that were never tried are estimated from their
/// neighbours. While plain decoding is best a probe is made now and then, so rarely that probes cost about 1 %, and
/// more rarely while they fail; while guessing is best a plain step is, so that an early mistake about either does not
/// last. Threads: one at a time.
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
  int64_t best() const;

  /// Share of right guesses at one place.
  struct Share {
    double value;
    double weight;
    void add(bool right);
  };
  /// Time of one kind of work.
  struct Seconds {
    double median = 0.0;  ///< the lower one: of two, the one that nothing disturbed
    int64_t count = 0;
    std::array<double, 9> last{};
    void add(double seconds);
  };
  int64_t most_;
  std::vector<Share> accepted_;  // by place
  std::vector<Seconds> step_;    // of a step, by guesses
  Seconds propose_;              // of guessing
  int64_t since_other_ = 0;      // steps since the kind that is not the better one was last made
  int64_t probe_every_;          // plain steps between probes
  int64_t check_every_;          // steps with guesses between plain ones
};

}  // namespace slipring
