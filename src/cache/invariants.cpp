#include "cache/invariants.h"

#include <algorithm>
#include <fmt/format.h>

#include <slipring/error.h>
#include <slipring/full_kv_cache.h>
#include <slipring/ring_kv_cache.h>

namespace slipring {
namespace {

int64_t place(const void* at, const void* start, int64_t row_bytes) {
  return (static_cast<const std::byte*>(at) - static_cast<const std::byte*>(start)) / row_bytes;
}

void check_ring(const CacheSnapshot& cache, std::vector<std::string>& found) {
  if (cache.window < 1 || cache.window > cache.capacity) {
    found.push_back(fmt::format("window {} is not in 1 to capacity {}", cache.window, cache.capacity));
    return;
  }
  if (cache.bytes_held != cache.capacity * cache.position_bytes) {
    found.push_back(fmt::format("{} bytes are held, not capacity {} times {}", cache.bytes_held, cache.capacity,
                                cache.position_bytes));
  }
  if (cache.offset - cache.first_held > cache.capacity) {
    found.push_back(
        fmt::format("positions {} to {} are more than {} slots", cache.first_held, cache.offset - 1, cache.capacity));
  }
  if (cache.first_held > std::max<int64_t>(0, cache.offset - cache.window + 1)) {
    found.push_back(fmt::format("position {} is the oldest held, but the query at {} with window {} sees further back",
                                cache.first_held, cache.offset, cache.window));
  }
  if (cache.runs.size() > 2) found.push_back(fmt::format("a ring gives {} runs, more than 2", cache.runs.size()));
  const int64_t room = cache.capacity - cache.offset % cache.capacity;
  if (cache.room_before_wrap != room) {
    found.push_back(fmt::format("room before the wrap is {}, not {}", cache.room_before_wrap, room));
  }
  for (const HeldRun& run : cache.runs) {
    if (run.k_place != run.first_position % cache.capacity || run.k_place + run.count > cache.capacity) {
      found.push_back(fmt::format("the run of {} from position {} lies at slot {} of {}", run.count, run.first_position,
                                  run.k_place, cache.capacity));
    }
  }
}

void check_full(const CacheSnapshot& cache, std::vector<std::string>& found) {
  if (cache.first_held != 0) found.push_back(fmt::format("a full cache begins at {}", cache.first_held));
  if (cache.capacity < cache.offset || cache.capacity - cache.offset >= FullKVCache::kPagePositions) {
    found.push_back(fmt::format("{} positions are allocated for {}", cache.capacity, cache.offset));
  }
  if (cache.bytes_held != cache.capacity * cache.position_bytes) {
    found.push_back(fmt::format("{} bytes are held for {} positions of {}", cache.bytes_held, cache.capacity,
                                cache.position_bytes));
  }
}

}  // namespace

CacheSnapshot snapshot(const RingKVCache& cache) {
  CacheSnapshot result{.is_ring = true,
                       .offset = cache.offset(),
                       .first_held = cache.first_held(),
                       .capacity = cache.capacity(),
                       .window = cache.window(),
                       .room_before_wrap = cache.room_before_wrap(),
                       .bytes_held = cache.bytes_held(),
                       .position_bytes = 2 * cache.layout().bytes(),
                       .runs = {}};
  for (const KVRun& run : cache.held().runs) {
    result.runs.push_back({.first_position = run.first_position,
                           .count = run.count,
                           .k_place = place(run.k, cache.k_slots().raw(), cache.layout().bytes()),
                           .v_place = place(run.v, cache.v_slots().raw(), cache.layout().bytes())});
  }
  return result;
}

CacheSnapshot snapshot(const FullKVCache& cache) {
  const int64_t position_bytes = 2 * cache.layout().bytes();
  CacheSnapshot result{.is_ring = false,
                       .offset = cache.offset(),
                       .first_held = cache.first_held(),
                       .capacity = cache.bytes_held() / position_bytes,
                       .window = 0,
                       .room_before_wrap = cache.room_before_wrap(),
                       .bytes_held = cache.bytes_held(),
                       .position_bytes = position_bytes,
                       .runs = {}};
  for (const KVRun& run : cache.held().runs) {
    result.runs.push_back({.first_position = run.first_position,
                           .count = run.count,
                           .k_place = run.first_position,
                           .v_place = run.first_position});
  }
  return result;
}

std::vector<std::string> violations(const CacheSnapshot& cache) {
  std::vector<std::string> found;
  if (cache.offset < 0 || cache.first_held < 0 || cache.first_held > cache.offset) {
    found.push_back(fmt::format("first held {} is not in 0 to offset {}", cache.first_held, cache.offset));
  }
  int64_t next = cache.first_held;
  for (const HeldRun& run : cache.runs) {
    if (run.count < 1) found.push_back(fmt::format("the run from position {} is empty", run.first_position));
    if (run.first_position != next) {
      found.push_back(fmt::format("a run begins at position {}, not at {}", run.first_position, next));
    }
    if (run.k_place != run.v_place) {
      found.push_back(fmt::format("the run from position {} has K at {} and V at {}", run.first_position, run.k_place,
                                  run.v_place));
    }
    next = run.first_position + run.count;
  }
  if (next != cache.offset) found.push_back(fmt::format("the runs end at {}, not at offset {}", next, cache.offset));
  if (cache.is_ring) {
    check_ring(cache, found);
  } else {
    check_full(cache, found);
  }
  return found;
}

void require_none(const std::vector<std::string>& found) {
  if (found.empty()) return;
  throw Error(ErrorCode::internal, {.where = "cache invariants",
                                    .expected = "none violated",
                                    .got = fmt::format("{}", fmt::join(found, "; ")),
                                    .advice = "this is a bug in slipring; please report it"});
}

}  // namespace slipring
