// What attention reads: keys and values of one sequence and layer, where they lie, without a copy.
#pragma once

#include <cstdint>
#include <vector>

#include <slipring/dtype.h>

namespace slipring {

/// `count` consecutive positions that lie one after the other in memory.
/// Position first_position + i has its key at k + i * n_kv_heads * head_dim elements, and its value likewise.
struct KVRun {
  const void* k = nullptr;     ///< [count, n_kv_heads, head_dim] in the view's dtype
  const void* v = nullptr;     ///< [count, n_kv_heads, head_dim] in the view's dtype
  int64_t first_position = 0;  ///< absolute position of element 0
  int64_t count = 0;           ///< positions, >= 1
};

/// Runs in ascending position order without gaps: the past first, the step's own keys last.
/// Valid until the cache behind it is next written. A ring gives at most two runs of its own.
struct KVView {
  DType dtype = DType::F32;  ///< F32, F16 or BF16
  int n_kv_heads = 0;
  int head_dim = 0;
  std::vector<KVRun> runs;

  /// Position of the oldest key held; 0 if there are none.
  int64_t first_position() const noexcept { return runs.empty() ? 0 : runs.front().first_position; }
  /// One past the newest position held; 0 if there are none.
  int64_t end_position() const noexcept { return runs.empty() ? 0 : runs.back().first_position + runs.back().count; }
};

/// Which keys a query at position q sees: those at positions k with q - left <= k <= q + right.
/// A causal window of W (the query included) is {W - 1, 0}; full causal attention is {kEverything, 0};
/// a block that looks both ways has right > 0.
struct PositionRule {
  static constexpr int64_t kEverything = int64_t{1} << 62;
  int64_t left = kEverything;
  int64_t right = 0;

  static PositionRule causal() noexcept { return {}; }
  static PositionRule window(int64_t window) noexcept { return {window - 1, 0}; }
  /// First position that a query at `q` may see.
  int64_t first(int64_t q) const noexcept { return q - left > 0 ? q - left : 0; }
  /// One past the last position that a query at `q` may see, out of those before `end`.
  int64_t end(int64_t q, int64_t end_position) const noexcept {
    return q + right + 1 < end_position ? q + right + 1 : end_position;
  }
};

}  // namespace slipring
