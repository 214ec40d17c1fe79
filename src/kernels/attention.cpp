#include "kernels/attention.h"

#include <algorithm>
#include <vector>

#include "kernels/attention_tile.h"

namespace slipring {
namespace {

/// Tiles a thread below which the ranges of a tile are shared out as well.
constexpr int64_t kTilesPerThread = 2;
/// Query rows a tile in that case: small tiles first, then ranges.
constexpr int64_t kSmallTileRows = 24;

/// The scratch memory of a team that works for this thread, by worker, with room for every tile. The tasks of a team
/// may not throw, so nothing is left for them to allocate.
AttentionScratch* team_scratch(const std::vector<AttentionTile>& tiles, const ThreadPool& pool) {
  thread_local std::vector<AttentionScratch> team;
  const auto threads = static_cast<size_t>(pool.threads());
  if (team.size() < threads) team.resize(threads);
  int64_t rows = 0;
  int head_dim = 0;
  for (const AttentionTile& tile : tiles) {
    rows = std::max(rows, tile.rows());
    head_dim = std::max(head_dim, tile.task->view->head_dim);
  }
  for (size_t worker = 0; worker < threads; ++worker) team[worker].reserve(rows, head_dim);
  return team.data();
}

/// @param rows      most rows of a KV head in a tile
/// @param together  all KV heads in one tile, else a tile for each
void cut_tiles(std::span<const AttentionTask> tasks, int64_t rows, bool together, std::vector<AttentionTile>& tiles) {
  tiles.clear();
  for (const AttentionTask& task : tasks) {
    const int group = task.n_heads / task.view->n_kv_heads;
    const int64_t queries = std::max<int64_t>(1, rows / group);
    for (int64_t begin = 0; begin < task.query_len; begin += queries) {
      const int step = together ? task.view->n_kv_heads : 1;
      for (int head = 0; head < task.view->n_kv_heads; head += step) {
        tiles.push_back({&task, head, step, begin, std::min(queries, task.query_len - begin)});
      }
    }
  }
}

/// One range of one tile, whose share is gathered apart.
struct Piece {
  const AttentionTile* tile;
  int64_t range;
  float* gathered;
};

void attend_tile(const AttentionTile& tile, AttentionScratch& scratch) {
  const int64_t floats = tile.rows() * gathered_stride(tile.task->view->head_dim);
  float* gathered = scratch.floats(AttentionScratch::kGatheredSlot);
  float* later = scratch.floats(AttentionScratch::kLaterSlot);
  std::fill(gathered, gathered + floats, 0.0F);
  for (int64_t range = tile.first_range(); range < tile.end_range(); ++range) {
    attend_range(tile, range, scratch, later);
    merge_gathered(tile, later, gathered);
  }
  write_attention(tile, gathered);
}

/// Every range of every tile by itself, then the merge in ascending order: the same arithmetic as attend_tile().
void attend_split(const std::vector<AttentionTile>& tiles, ThreadPool& pool) {
  int64_t floats = 0;
  for (const AttentionTile& tile : tiles) {
    floats += (tile.end_range() - tile.first_range() + 1) * tile.rows() * gathered_stride(tile.task->view->head_dim);
  }
  AttentionScratch* scratch = team_scratch(tiles, pool);
  thread_local std::vector<float> memory;
  const auto needed = static_cast<size_t>(floats + AttentionScratch::kAlignment);
  if (memory.size() < needed) memory.resize(needed);
  float* gathered = AttentionScratch::aligned(memory);
  std::vector<Piece> pieces;
  for (const AttentionTile& tile : tiles) {
    const int64_t tile_floats = tile.rows() * gathered_stride(tile.task->view->head_dim);
    std::fill(gathered, gathered + tile_floats, 0.0F);  // where the tile's ranges are merged
    for (int64_t range = tile.first_range(); range < tile.end_range(); ++range) {
      pieces.push_back({&tile, range, gathered += tile_floats});
    }
    gathered += tile_floats;
  }
  pool.parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t i, int worker) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    attend_range(*piece.tile, piece.range, scratch[worker], piece.gathered);
  });
  // Some microseconds even for the longest texts: not worth waking threads for.
  gathered = AttentionScratch::aligned(memory);
  for (const AttentionTile& tile : tiles) {
    const int64_t tile_floats = tile.rows() * gathered_stride(tile.task->view->head_dim);
    float* merged = gathered;
    for (int64_t range = tile.first_range(); range < tile.end_range(); ++range) {
      merge_gathered(tile, gathered += tile_floats, merged);
    }
    write_attention(tile, merged);
    gathered += tile_floats;
  }
}

}  // namespace

void AttentionScratch::reserve(int64_t tile_rows, int head_dim) {
  if (tile_rows <= rows_ && head_dim <= head_dim_) return;
  tile_rows = std::max(tile_rows, rows_);
  head_dim = std::max(head_dim, head_dim_);
  const auto grow = [this](Slot slot, int64_t floats) {
    const auto needed = static_cast<size_t>(floats + kAlignment);
    if (memory_[slot].size() < needed) memory_[slot].resize(needed);
  };
  const int64_t stride = gathered_stride(head_dim);
  grow(kQuerySlot, tile_rows * stride);
  // A block of rows may reach past the last row.
  grow(kScoreSlot, (tile_rows + kMostBlockRows) * (kRangePositions + 16));
  grow(kPackedSlot, (tile_rows + kMostBlockRows) * stride);
  grow(kKeySlot, kMostBlockKeys * stride);
  grow(kValueSlot, kMostValueKeys * stride);
  grow(kGatheredSlot, tile_rows * stride);
  grow(kLaterSlot, tile_rows * stride);
  rows_ = tile_rows;
  head_dim_ = head_dim;
}

void attention(std::span<const AttentionTask> tasks, ThreadPool& pool) {
  const int64_t enough = kTilesPerThread * pool.threads();
  std::vector<AttentionTile> tiles;
  cut_tiles(tasks, kTileRows, false, tiles);
  if (static_cast<int64_t>(tiles.size()) >= enough) {
    AttentionScratch* scratch = team_scratch(tiles, pool);
    pool.parallel_for(static_cast<int64_t>(tiles.size()),
                      [&](int64_t i, int worker) { attend_tile(tiles[static_cast<size_t>(i)], scratch[worker]); });
    return;
  }
  // Few tiles: a decode step. Memory decides, so the KV heads of a position are read together where the ranges alone
  // give each thread enough to do.
  cut_tiles(tasks, kSmallTileRows, true, tiles);
  int64_t ranges = 0;
  for (const AttentionTile& tile : tiles) ranges += tile.end_range() - tile.first_range();
  if (pool.threads() > 1 && ranges < enough) cut_tiles(tasks, kSmallTileRows, false, tiles);
  attend_split(tiles, pool);
}

}  // namespace slipring
