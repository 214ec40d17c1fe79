#include <algorithm>
#include <fmt/format.h>

#include <slipring/error.h>
#include <slipring/ring.h>
#include <slipring/step_plan.h>

namespace slipring {
namespace {

void check_least(const char* name, int64_t value, int64_t least) {
  if (value >= least) return;
  throw Error(ErrorCode::invalid_argument, {.where = "plan_steps",
                                            .expected = fmt::format("{} >= {}", name, least),
                                            .got = std::to_string(value),
                                            .advice = {}});
}

}  // namespace

int64_t longest_step(int64_t offset, int64_t chunk, std::span<const int64_t> capacities) {
  check_least("offset", offset, 0);
  check_least("chunk", chunk, 1);
  int64_t longest = chunk;
  for (const int64_t capacity : capacities) {
    check_least("capacity", capacity, 1);
    longest = std::min(longest, ring::room_before_wrap(offset, capacity));
  }
  return longest;
}

std::vector<PlannedStep> plan_steps(int64_t offset, int64_t n_tokens, int64_t chunk,
                                    std::span<const int64_t> capacities) {
  check_least("n_tokens", n_tokens, 0);
  std::vector<PlannedStep> steps;
  longest_step(offset, chunk, capacities);  // arguments are checked even where there is nothing to plan
  while (n_tokens > 0) {
    const int64_t count = std::min(n_tokens, longest_step(offset, chunk, capacities));
    steps.push_back({.offset = offset, .count = count});
    offset += count;
    n_tokens -= count;
  }
  return steps;
}

}  // namespace slipring
