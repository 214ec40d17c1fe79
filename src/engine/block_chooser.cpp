#include "engine/block_chooser.h"

#include <algorithm>

namespace slipring {
namespace {

constexpr double kMemory = 32.0;        // steps that an average looks back on
constexpr int64_t kProbeGuesses = 2;    // a small step: cheap if they are wrong, telling if they are right
constexpr double kFirstTries = 2;       // steps with guesses before anything is concluded
constexpr double kPriorWeight = 2.0;    // observations that the even chance at the start counts for
constexpr int64_t kFirstProbe = 32;     // plain steps before guesses are tried again
constexpr int64_t kRarestProbe = 1024;  // and at most
constexpr double kWorthIt = 1.03;       // guessing must promise this much more than plain decoding

}  // namespace

void BlockChooser::Average::add(double x, double memory) {
  weight = std::min(weight + 1.0, memory);
  value += (x - value) / weight;
}

BlockChooser::BlockChooser(int64_t most)
    : most_(most),
      accepted_(static_cast<size_t>(most)),
      step_(static_cast<size_t>(most) + 1),
      probe_every_(kFirstProbe) {
  // One wrong guess is no proof: start from an even chance, worth two observations.
  for (Average& share : accepted_) share = {.value = 0.5, .weight = kPriorWeight};
}

double BlockChooser::step_time(int64_t guesses) const {
  // Between measured sizes in a straight line, and beyond the largest one along the line from plain decoding to it.
  const auto at = [this](int64_t i) -> const Average& { return step_[static_cast<size_t>(i)]; };
  if (at(guesses).weight > 0) return at(guesses).value;
  int64_t below = guesses;
  int64_t above = guesses;
  while (below >= 0 && at(below).weight == 0) --below;
  while (above <= most_ && at(above).weight == 0) ++above;
  if (below < 0 && above > most_) return 0.0;
  if (below < 0) return at(above).value;
  if (above > most_) {
    if (below == 0 || at(0).weight == 0) return at(below).value;
    const double slope = std::max(0.0, at(below).value - at(0).value) / static_cast<double>(below);
    return at(below).value + slope * static_cast<double>(guesses - below);
  }
  const double share = static_cast<double>(guesses - below) / static_cast<double>(above - below);
  return at(below).value + share * (at(above).value - at(below).value);
}

double BlockChooser::rate(int64_t guesses) const {
  const double seconds = step_time(guesses) + (guesses > 0 ? propose_.value : 0.0);
  double tokens = 1.0;
  double chain = 1.0;
  double share = 0.5;
  for (int64_t i = 0; i < guesses; ++i) {
    // A place never reached is taken for as good as the one before it.
    const Average& measured = accepted_[static_cast<size_t>(i)];
    if (measured.weight > kPriorWeight) share = measured.value;
    chain *= share;
    tokens += chain;
  }
  return seconds > 0 ? tokens / seconds : tokens;
}

int64_t BlockChooser::next() {
  if (step_[0].weight < 2) return 0;                                         // first see what plain decoding takes
  if (propose_.weight < kFirstTries) return std::min(most_, kProbeGuesses);  // then try a few guesses
  int64_t best = 0;
  for (int64_t guesses = 1; guesses <= most_; ++guesses) {
    if (rate(guesses) > rate(best) * (best == 0 ? kWorthIt : 1.0)) best = guesses;
  }
  if (best > 0) {
    since_probe_ = 0;
    probe_every_ = kFirstProbe;
    return best;
  }
  if (++since_probe_ >= probe_every_) {
    since_probe_ = 0;
    probe_every_ = std::min(probe_every_ * 2, kRarestProbe);
    return std::min(most_, kProbeGuesses);
  }
  return 0;
}

void BlockChooser::observe(int64_t asked, int64_t proposed, int64_t accepted, double step_seconds,
                           double propose_seconds) {
  step_[static_cast<size_t>(proposed)].add(step_seconds, kMemory);
  if (asked > 0) propose_.add(propose_seconds, kMemory);
  for (int64_t i = 0; i < proposed && i <= accepted; ++i) {
    accepted_[static_cast<size_t>(i)].add(i < accepted ? 1.0 : 0.0, kMemory);
  }
  if (asked > 0 && proposed == 0 && !accepted_.empty()) accepted_[0].add(0.0, kMemory);  // nothing to guess from
}

}  // namespace slipring
