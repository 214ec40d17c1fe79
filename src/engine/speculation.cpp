#include "engine/speculation.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>

#include <slipring/error.h>

namespace slipring {

void Drafts::restore(int64_t, std::span<const std::byte>) {
  clear();
}

void check_block(const SpeculationOptions& options, int64_t max_drafts) {
  const int64_t block = options.block;
  if (block == 0 || max_drafts == 0 || (block >= 2 && block <= max_drafts + 1)) return;
  throw Error(ErrorCode::invalid_argument, {.where = "draft block",
                                            .expected = fmt::format("2 to {}, or 0 for automatic", max_drafts + 1),
                                            .got = std::to_string(block),
                                            .advice = {}});
}

void keep_valid_guesses(std::vector<TokenId>& guesses, int64_t vocab_size) {
  const auto bad =
      std::find_if(guesses.begin(), guesses.end(), [vocab_size](TokenId id) { return id < 0 || id >= vocab_size; });
  guesses.erase(bad, guesses.end());
}

void record(SpeculationStats& stats, size_t proposed, size_t accepted) {
  ++stats.steps;
  stats.proposed += static_cast<int64_t>(proposed);
  stats.accepted += static_cast<int64_t>(accepted);
  if (stats.proposed_at.size() < proposed) {
    stats.proposed_at.resize(proposed);
    stats.accepted_at.resize(proposed);
  }
  for (size_t i = 0; i < proposed; ++i) ++stats.proposed_at[i];
  for (size_t i = 0; i < accepted; ++i) ++stats.accepted_at[i];
}

}  // namespace slipring
