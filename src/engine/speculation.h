// What verify does with guesses: accept the ones that the model would have drawn itself.
#pragma once

#include <vector>

#include <slipring/drafts.h>
#include <slipring/sampling.h>

#include "engine/step.h"

namespace slipring {

/// Draws tokens from the rows of a verify step, as plain decoding would draw them one after the other: same logits,
/// same history, same draws. Guess j was right if the token drawn from row j equals it; the first wrong one ends it.
///
/// @param guesses  the tokens after the first one of the part
/// @param history  all tokens so far, including the part's first; the drawn tokens are appended
/// @param stop     called with each drawn token; true ends the drawing after it (end of turn, stop string, limit)
/// @return the drawn tokens; guesses[0 .. result.size() - 2] were right, so result.size() tokens of the part are to be
/// committed
template <class Stop>
std::vector<TokenId> draw_from_verified(const Step& step, size_t part, std::span<const TokenId> guesses,
                                        Sampler& sampler, std::vector<TokenId>& history, Stop&& stop) {
  std::vector<TokenId> drawn;
  for (size_t row = 0; row <= guesses.size(); ++row) {
    const TokenId token = sampler.pick(step.logits(part, static_cast<int64_t>(row)), history);
    sampler.advance();
    drawn.push_back(token);
    history.push_back(token);
    if (stop(token) || row == guesses.size() || token != guesses[row]) break;
  }
  return drawn;
}

/// @param max_drafts  of the drafts in use; 0: none, and then no block is looked at
/// @throws Error{invalid_argument} for a block that they cannot fill
void check_block(const SpeculationOptions& options, int64_t max_drafts);

/// Guesses that may be verified: cut before the first id outside the vocabulary.
void keep_valid_guesses(std::vector<TokenId>& guesses, int64_t vocab_size);

void record(SpeculationStats& stats, size_t proposed, size_t accepted);

}  // namespace slipring
