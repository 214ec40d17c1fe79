#include <algorithm>
#include <fmt/format.h>

#include <slipring/error.h>
#include <slipring/ring.h>

namespace slipring::ring {

SlotRuns runs(int64_t first, int64_t end, int64_t capacity) {
  if (capacity < 1 || first < 0 || end < first || end - first > capacity) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "ring::runs",
                 .expected = "0 <= first <= end, and at most capacity positions of a ring with at least one slot",
                 .got = fmt::format("positions {} to {} in {} slots", first, end, capacity),
                 .advice = {}});
  }
  SlotRuns result;
  while (first < end) {
    const int64_t slot = slot_of(first, capacity);
    const int64_t count = std::min(end - first, capacity - slot);
    result.push_back({.slot = slot, .first_position = first, .count = count});
    first += count;
  }
  return result;
}

int64_t room_before_wrap(int64_t offset, int64_t capacity) {
  return capacity - slot_of(offset, capacity);
}

void check_geometry(int64_t capacity, int64_t window, const char* where) {
  if (capacity >= 1 && window >= 1 && window <= capacity) return;
  throw Error(ErrorCode::invalid_argument,
              {.where = where,
               .expected = "1 <= window <= capacity",
               .got = fmt::format("window {} and capacity {}", window, capacity),
               .advice = "a ring needs one slot for every key that a query sees, the query's own included"});
}

}  // namespace slipring::ring
