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

AttentionScratch& thread_scratch() {
  thread_local AttentionScratch scratch;
  return scratch;
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

void attend_tile(const AttentionTile& tile) {
  AttentionScratch& scratch = thread_scratch();
  const int64_t floats = tile.rows() * gathered_stride(tile.task->view->head_dim);
  float* gathered = scratch.floats(AttentionScratch::kGatheredSlot, floats);
  float* later = scratch.floats(AttentionScratch::kLaterSlot, floats);
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
  float* gathered = thread_scratch().floats(AttentionScratch::kPiecesSlot, floats);
  std::vector<Piece> pieces;
  for (const AttentionTile& tile : tiles) {
    const int64_t tile_floats = tile.rows() * gathered_stride(tile.task->view->head_dim);
    std::fill(gathered, gathered + tile_floats, 0.0F);  // where the tile's ranges are merged
    for (int64_t range = tile.first_range(); range < tile.end_range(); ++range) {
      pieces.push_back({&tile, range, gathered += tile_floats});
    }
    gathered += tile_floats;
  }
  pool.parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t i, int) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    attend_range(*piece.tile, piece.range, thread_scratch(), piece.gathered);
  });
  // Some microseconds even for the longest texts: not worth waking threads for.
  gathered = thread_scratch().floats(AttentionScratch::kPiecesSlot, floats);
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

float* AttentionScratch::floats(int slot, int64_t count) {
  constexpr size_t kAlignment = 16;  // floats
  std::vector<float>& memory = memory_[slot];
  if (memory.size() < static_cast<size_t>(count) + kAlignment) memory.resize(static_cast<size_t>(count) + kAlignment);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (64 - address % 64) % 64 / sizeof(float);
}

void attention(std::span<const AttentionTask> tasks, ThreadPool& pool) {
  const int64_t enough = kTilesPerThread * pool.threads();
  std::vector<AttentionTile> tiles;
  cut_tiles(tasks, kTileRows, false, tiles);
  if (static_cast<int64_t>(tiles.size()) >= enough) {
    pool.parallel_for(static_cast<int64_t>(tiles.size()),
                      [&](int64_t i, int) { attend_tile(tiles[static_cast<size_t>(i)]); });
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
