// What must hold for every cache after every operation, as a pure function over a snapshot of it.
#pragma once

#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include <slipring/layer_cache.h>

namespace slipring {

class RingKVCache;
class FullKVCache;

/// One run of a cache's view, with the place of its memory: slot for a ring, position for a full cache.
struct HeldRun {
  int64_t first_position = 0;
  int64_t count = 0;
  int64_t k_place = 0;  ///< positions between the start of the K storage and the run's keys; a full cache's page start
  int64_t v_place = 0;
};

/// The facts of a cache that its invariants speak of; plain numbers, so a test can make any of them wrong.
struct CacheSnapshot {
  bool is_ring = false;
  int64_t offset = 0;
  int64_t first_held = 0;
  int64_t capacity = 0;  ///< slots of a ring; positions allocated by a full cache
  int64_t window = 0;    ///< of a ring
  int64_t room_before_wrap = 0;
  int64_t bytes_held = 0;
  int64_t position_bytes = 0;  ///< of K and V together
  std::vector<HeldRun> runs;
};

CacheSnapshot snapshot(const RingKVCache& cache);
CacheSnapshot snapshot(const FullKVCache& cache);

/// Every violated invariant, one sentence each; empty for a sound cache. Pure.
std::vector<std::string> violations(const CacheSnapshot& cache);

/// @throws Error{internal} with all of them if `found` is not empty
void require_none(const std::vector<std::string>& found);

/// After every operation of a cache: require_none(violations(...)) in debug builds, nothing in release builds. Where
/// there is no memory to look, nothing is found: an operation that has succeeded may not fail for that.
template <class Cache>
void check_invariants([[maybe_unused]] const Cache& cache) {
#ifndef NDEBUG
  std::vector<std::string> found;
  try {
    found = violations(snapshot(cache));
  } catch (const std::bad_alloc&) {
    return;
  }
  require_none(found);
#endif
}

}  // namespace slipring
