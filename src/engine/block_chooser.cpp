#include "engine/block_chooser.h"

#include <algorithm>

namespace slipring {
namespace {

constexpr double kMemory = 32.0;        // steps that a share of right guesses looks back on
constexpr int64_t kProbeGuesses = 2;    // a small step: cheap if they are wrong, telling if they are right
constexpr int64_t kPlainFirst = 3;      // plain steps before anything is concluded
constexpr int64_t kFirstTries = 2;      // and steps with guesses
constexpr double kPriorWeight = 2.0;    // observations that the even chance at the start counts for
constexpr int64_t kFirstProbe = 32;     // plain steps before guesses are tried again
constexpr int64_t kRarestProbe = 1024;  // and at most
constexpr double kProbeShare = 0.01;    // of the time may go into probes
constexpr int64_t kFirstCheck = 4;      // steps with guesses before a plain one is measured again
constexpr int64_t kRarestCheck = 128;   // and at most
constexpr double kWorthIt = 1.03;       // guessing must promise this much more than plain decoding

}  // namespace

void BlockChooser::Share::add(bool right) {
  weight = std::min(weight + 1.0, kMemory);
  value += ((right ? 1.0 : 0.0) - value) / weight;
}

void BlockChooser::Seconds::add(double seconds) {
  const auto size = static_cast<int64_t>(last.size());
  last[static_cast<size_t>(count++ % size)] = seconds;
  auto sorted = last;
  const int64_t held = std::min(count, size);
  const auto middle = sorted.begin() + (held - 1) / 2;
  std::nth_element(sorted.begin(), middle, sorted.begin() + held);
  median = *middle;
}

BlockChooser::BlockChooser(int64_t most)
    : most_(most),
      // One wrong guess is no proof: start from an even chance, worth two observations.
      accepted_(static_cast<size_t>(most), {.value = 0.5, .weight = kPriorWeight}),
      step_(static_cast<size_t>(most) + 1),
      probe_every_(kFirstProbe),
      check_every_(kFirstCheck) {}

double BlockChooser::step_time(int64_t guesses) const {
  // Between measured sizes in a straight line, and beyond the largest one along the line from plain decoding to it.
  const auto at = [this](int64_t i) -> const Seconds& { return step_[static_cast<size_t>(i)]; };
  if (at(guesses).count > 0) return at(guesses).median;
  int64_t below = guesses;
  int64_t above = guesses;
  while (below >= 0 && at(below).count == 0) --below;
  while (above <= most_ && at(above).count == 0) ++above;
  if (below < 0 && above > most_) return 0.0;
  if (below < 0) return at(above).median;
  if (above > most_) {
    if (below == 0 || at(0).count == 0) return at(below).median;
    const double slope = std::max(0.0, at(below).median - at(0).median) / static_cast<double>(below);
    return at(below).median + slope * static_cast<double>(guesses - below);
  }
  const double share = static_cast<double>(guesses - below) / static_cast<double>(above - below);
  return at(below).median + share * (at(above).median - at(below).median);
}

double BlockChooser::rate(int64_t guesses) const {
  const double seconds = step_time(guesses) + (guesses > 0 ? propose_.median : 0.0);
  double tokens = 1.0;
  double chain = 1.0;
  double share = 0.5;
  for (int64_t i = 0; i < guesses; ++i) {
    // A place never reached is taken for as good as the one before it.
    const Share& measured = accepted_[static_cast<size_t>(i)];
    if (measured.weight > kPriorWeight) share = measured.value;
    chain *= share;
    tokens += chain;
  }
  return seconds > 0 ? tokens / seconds : tokens;
}

int64_t BlockChooser::best() const {
  int64_t best = 0;
  for (int64_t guesses = 1; guesses <= most_; ++guesses) {
    if (rate(guesses) > rate(best) * (best == 0 ? kWorthIt : 1.0)) best = guesses;
  }
  return best;
}

int64_t BlockChooser::next() {
  const int64_t probe = std::min(most_, kProbeGuesses);
  if (step_[0].count < kPlainFirst) return 0;
  if (propose_.count < kFirstTries) return probe;
  const int64_t guesses = best();
  ++since_other_;
  if (guesses > 0) {
    probe_every_ = kFirstProbe;
    if (since_other_ < check_every_) return guesses;
    since_other_ = 0;
    check_every_ = std::min(check_every_ * 2, kRarestCheck);
    return 0;
  }
  check_every_ = kFirstCheck;
  const double loss = (step_time(probe) + propose_.median) / step_[0].median - 1.0;  // of a probe, in plain steps
  const auto due = static_cast<int64_t>(std::clamp(loss / kProbeShare, 0.0, static_cast<double>(kRarestProbe)));
  if (since_other_ < std::max(probe_every_, due)) return 0;
  since_other_ = 0;
  probe_every_ = std::min(probe_every_ * 2, kRarestProbe);
  return probe;
}

void BlockChooser::observe(int64_t asked, int64_t proposed, int64_t accepted, double step_seconds,
                           double propose_seconds) {
  step_[static_cast<size_t>(proposed)].add(step_seconds);
  if (asked > 0) propose_.add(propose_seconds);
  for (int64_t i = 0; i < proposed && i <= accepted; ++i) accepted_[static_cast<size_t>(i)].add(i < accepted);
  if (asked > 0 && proposed == 0) since_other_ = 0;  // the guesser had nothing to go by: a plain step was measured
}

}  // namespace slipring
