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
  double disturbed = 0.0;      ///< share of steps that take ten times as long, for no reason of theirs
  int disturbed_at_first = 0;  ///< so many of the first steps are
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
    const double factor = i < world.disturbed_at_first || random() < world.disturbed ? 10.0 : 1.0;
    chooser.observe(asked, asked, accepted, step * factor, propose * factor);
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

// What is counted is the choice: the time that each step would have taken undisturbed.
TEST(BlockChooser, ADisturbedStepDecidesNothing) {
  for (const int at_first : {0, 1, 2, 3, 4, 5}) {
    const World bad{
        .seconds_a_guess = 0.5, .propose_seconds = 0.5, .right = 0.2, .disturbed = 0.1, .disturbed_at_first = at_first};
    EXPECT_GT(gain(bad, 7, 2000), 0.97) << at_first;
    const World good{.seconds_a_guess = 0.1, .right = 0.8, .disturbed = 0.1, .disturbed_at_first = at_first};
    EXPECT_GT(gain(good, 7, 2000), 1.8) << at_first;
  }
}

TEST(BlockChooser, AShortTextOnWhichGuessesCostAsMuchAsTheModel) {
  EXPECT_GT(gain({.plain_seconds = 1.0, .seconds_a_guess = 0.2, .propose_seconds = 0.8, .right = 0.35}, 7, 160), 0.97);
}

TEST(BlockChooser, OneGuessAtMost) {
  EXPECT_GT(gain({.plain_seconds = 1.0, .seconds_a_guess = 0.05, .propose_seconds = 0.01, .right = 0.9}, 1, 200), 1.5);
}

}  // namespace
}  // namespace slipring
