// The chooser against simulated machines: it must find what pays and cost next to nothing where nothing does.
#include "engine/block_chooser.h"

#include <gtest/gtest.h>

namespace slipring {
namespace {

/// A machine and a text: what a step with k guesses takes, what guessing takes, and how often guesses are right.
struct World {
  double plain_seconds = 1.0;
  double seconds_a_guess = 0.05;  ///< that each guess adds to a step
  double propose_seconds = 0.1;
  double right = 0.8;
};

/// Tokens a second of `steps` steps under the chooser, in multiples of plain decoding's.
double gain(const World& world, int64_t most, int steps) {
  BlockChooser chooser(most);
  uint64_t state = 12345;
  const auto random = [&state] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state >> 11U) * 0x1p-53;
  };
  double seconds = 0.0;
  int64_t tokens = 0;
  for (int i = 0; i < steps; ++i) {
    const int64_t asked = chooser.next();
    EXPECT_GE(asked, 0);
    EXPECT_LE(asked, most);
    int64_t accepted = 0;
    while (accepted < asked && random() < world.right) ++accepted;
    const double step = world.plain_seconds + world.seconds_a_guess * static_cast<double>(asked);
    const double propose = asked > 0 ? world.propose_seconds : 0.0;
    chooser.observe(asked, asked, accepted, step, propose);
    seconds += step + propose;
    tokens += 1 + accepted;
  }
  return static_cast<double>(tokens) / seconds * world.plain_seconds;
}

TEST(BlockChooser, GuessesThatPayAreMade) {
  EXPECT_GT(gain({.plain_seconds = 1.0, .seconds_a_guess = 0.02, .propose_seconds = 0.1, .right = 0.9}, 15, 400), 3.0);
  EXPECT_GT(gain({.plain_seconds = 1.0, .seconds_a_guess = 0.1, .propose_seconds = 0.1, .right = 0.64}, 7, 400), 1.4);
}

TEST(BlockChooser, GuessesThatDoNotPayCostNextToNothing) {
  for (const double right : {0.0, 0.05, 0.2}) {
    for (const double cost : {0.3, 1.0}) {
      const World world{.plain_seconds = 1.0, .seconds_a_guess = cost, .propose_seconds = 0.5, .right = right};
      EXPECT_GT(gain(world, 7, 2000), 0.97) << right << " " << cost;
    }
  }
}

TEST(BlockChooser, OneGuessAtMost) {
  EXPECT_GT(gain({.plain_seconds = 1.0, .seconds_a_guess = 0.05, .propose_seconds = 0.01, .right = 0.9}, 1, 200), 1.5);
}

}  // namespace
}  // namespace slipring
