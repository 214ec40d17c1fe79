// Attention of one tile: some neighbouring queries of one sequence with all query heads of some KV heads.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention.h"

namespace slipring {

/// Keys are taken in ranges of this many positions, each starting at a multiple of it. What a query gathers from one
/// range is complete in itself; ranges are merged in ascending order. Part of what defines the bits: see attention.cpp.
inline constexpr int64_t kRangePositions = 256;
/// Query rows (queries x heads of the group) that share a pass over keys and values when there are many.
inline constexpr int64_t kTileRows = 96;

/// Most rows, keys and values that a target's blocks take at a time; attention_scores-inl.h, attention_values-inl.h.
inline constexpr int64_t kMostBlockRows = 6;
inline constexpr int64_t kMostBlockKeys = 32;
inline constexpr int64_t kMostValueKeys = 32;

/// How far ahead keys and values are asked for, in positions.
inline constexpr int64_t kReadAhead = 128;

/// Rows are numbered KV head by KV head, query by query, heads of the group inside.
struct AttentionTile {
  const AttentionTask* task = nullptr;
  int kv_head = 0;          ///< the first
  int kv_heads = 0;         ///< how many
  int64_t query_begin = 0;  ///< in the task
  int64_t query_count = 0;

  int group() const noexcept { return task->n_heads / task->view->n_kv_heads; }
  int64_t rows_of_a_head() const noexcept { return query_count * group(); }
  int64_t rows() const noexcept { return kv_heads * rows_of_a_head(); }
  /// Row 0 of `query` of the tile's KV head `head` in the task's q and out.
  int64_t element(int head, int64_t query) const noexcept {
    const int64_t first_head = static_cast<int64_t>(kv_head + head) * group();
    return ((query_begin + query) * task->n_heads + first_head) * task->view->head_dim;
  }
  int64_t position(int64_t query) const noexcept { return task->offset + query_begin + query; }
  /// Keys that query `query` of the tile sees.
  int64_t first_key(int64_t query) const noexcept { return task->rule.first(position(query)); }
  int64_t end_key(int64_t query) const noexcept { return task->rule.end(position(query), task->view->end_position()); }
  /// Ranges that any of its queries sees: [first_range, end_range).
  int64_t first_range() const noexcept { return first_key(0) / kRangePositions; }
  int64_t end_range() const noexcept { return (end_key(query_count - 1) + kRangePositions - 1) / kRangePositions; }
};

/// What a row has gathered: acc[head_dim, padded to whole lanes] not yet divided by the sum, then max, then sum.
/// sum == 0 means that it saw no key. Floats a row:
inline int64_t gathered_stride(int head_dim) noexcept {
  return (head_dim + 15) / 16 * 16 + 16;
}

/// Working memory of one thread of a team. It is sized before the team starts, since its tasks may not throw; it grows
/// to the largest tile it has seen.
class AttentionScratch {
 public:
  /// What for: the last two belong to attention.cpp.
  enum Slot { kQuerySlot, kScoreSlot, kPackedSlot, kKeySlot, kValueSlot, kGatheredSlot, kLaterSlot, kSlots };

  /// Room for tiles of at most `tile_rows` rows and heads of at most `head_dim`. @throws std::bad_alloc
  void reserve(int64_t tile_rows, int head_dim);
  /// What reserve() made room for, aligned to 64 bytes.
  float* floats(Slot slot) noexcept { return aligned(memory_[slot]); }

  /// The first float of `memory` on a 64-byte boundary; it is to have kAlignment floats more than are needed.
  static float* aligned(std::vector<float>& memory) noexcept {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + (64 - address % 64) % 64 / sizeof(float);
  }
  static constexpr int64_t kAlignment = 16;

  /// Where the positions of the range at hand lie, all KV heads, in the order in which memory is read: the keys seen,
  /// their values, then the first keys of the next range.
  const void* rows[2 * kRangePositions + kReadAhead];

 private:
  std::vector<float> memory_[kSlots];
  int64_t rows_ = 0;
  int head_dim_ = 0;
};

/// gathered[rows, gathered_stride] of one range.
void attend_range(const AttentionTile& tile, int64_t range, AttentionScratch& scratch, float* gathered);
/// Adds what a later range gathered.
void merge_gathered(const AttentionTile& tile, const float* later, float* gathered);
/// Joins the sinks, divides and writes the rows to the task's out.
void write_attention(const AttentionTile& tile, const float* gathered);

}  // namespace slipring
