// Cuts a prompt into steps that every ring of a model can write.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace slipring {

/// One step: `count` tokens, the first of them at position `offset`.
struct PlannedStep {
  int64_t offset = 0;
  int64_t count = 0;

  bool operator==(const PlannedStep&) const = default;
};

/// The fewest steps in which n_tokens tokens from position `offset` on can be computed: none is longer than `chunk`,
/// and in none does a ring's write wrap. Any part of a legal step is legal, so taking the longest step each time is
/// optimal.
/// @param chunk       tokens a step, >= 1
/// @param capacities  slots of every ring of the model, in any order and with repeats; empty for a model without rings
/// @throws Error{invalid_argument} naming the value that is out of range
std::vector<PlannedStep> plan_steps(int64_t offset, int64_t n_tokens, int64_t chunk,
                                    std::span<const int64_t> capacities);

/// The longest legal step at `offset`: the plan's first step for endless tokens. Errors as above.
int64_t longest_step(int64_t offset, int64_t chunk, std::span<const int64_t> capacities);

}  // namespace slipring
