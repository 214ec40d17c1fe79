#include "engine/block_chooser.h"

#include <algorithm>

namespace slipring {
namespace {

constexpr double kMemory = 32.0;       // steps that an average looks back on
constexpr int64_t kFirstProbe = 16;    // plain steps before guesses are tried again
constexpr int64_t kRarestProbe = 512;  // and at most
constexpr double kWorthIt = 1.03;      // guessing must promise this much more than plain decoding

}  // namespace

void BlockChooser::Average::add(double x, double memory) {
  weight = std::min(weight + 1.0, memory);
  value += (x - value) / weight;
}

BlockChooser::BlockChooser(int64_t most)
    : most_(most),
      accepted_(static_cast<size_t>(most)),
      step_(static_cast<size_t>(most) + 1),
      probe_every_(kFirstProbe) {}

double BlockChooser::step_time(int64_t guesses) const {
  // Between measured neighbours in a straight line; beyond them the nearest one, as a pass over the weights dominates.
  const auto at = [this](int64_t i) -> const Average& { return step_[static_cast<size_t>(i)]; };
  if (at(guesses).weight > 0) return at(guesses).value;
  int64_t below = guesses;
  int64_t above = guesses;
  while (below >= 0 && at(below).weight == 0) --below;
  while (above <= most_ && at(above).weight == 0) ++above;
  if (below < 0 && above > most_) return 0.0;
  if (below < 0) return at(above).value;
  if (above > most_) return at(below).value;
  const double share = static_cast<double>(guesses - below) / static_cast<double>(above - below);
  return at(below).value + share * (at(above).value - at(below).value);
}

double BlockChooser::rate(int64_t guesses) const {
  const double seconds = step_time(guesses) + (guesses > 0 ? propose_.value : 0.0);
  double tokens = 1.0;
  double chain = 1.0;
  for (int64_t i = 0; i < guesses; ++i) {
    const Average& share = accepted_[static_cast<size_t>(i)];
    // A place never reached is taken for as good as the one before it: hope, until measured.
    chain *= share.weight > 0 ? share.value : (i > 0 ? accepted_[static_cast<size_t>(i - 1)].value : 0.8);
    tokens += chain;
  }
  return seconds > 0 ? tokens / seconds : tokens;
}

int64_t BlockChooser::next() {
  if (propose_.weight == 0) return most_;  // nothing known: try a whole block first
  if (step_[0].weight < 2) return 0;       // then see what plain decoding takes
  int64_t best = 0;
  for (int64_t guesses = 1; guesses <= most_; ++guesses) {
    if (rate(guesses) > rate(best) * (best == 0 ? kWorthIt : 1.0)) best = guesses;
  }
  if (best > 0) {
    probing_ = false;
    since_probe_ = 0;
    probe_every_ = kFirstProbe;
    // A plain step now and then keeps its time known.
    return best;
  }
  if (++since_probe_ >= probe_every_) {
    since_probe_ = 0;
    probe_every_ = std::min(probe_every_ * 2, kRarestProbe);
    probing_ = true;
    return std::max<int64_t>(1, most_ / 2);
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
