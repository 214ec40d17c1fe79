#include <algorithm>
#include <fmt/format.h>

#include <slipring/error.h>
#include <slipring/layer_cache.h>
#include <slipring/write_first.h>

namespace slipring {

LayerCache::LayerCache(KVLayout layout, const char* where) : layout_(layout) {
  if (layout.n_kv_heads < 1 || layout.head_dim < 1) {
    throw Error(ErrorCode::invalid_argument,
                {.where = where,
                 .expected = "n_kv_heads >= 1 and head_dim >= 1",
                 .got = fmt::format("n_kv_heads {} and head_dim {}", layout.n_kv_heads, layout.head_dim),
                 .advice = {}});
  }
  if (layout.dtype != DType::F32 && layout.dtype != DType::F16 && layout.dtype != DType::BF16) {
    throw Error(ErrorCode::dtype_mismatch, {.where = where,
                                            .expected = "a cache of F32, F16 or BF16",
                                            .got = std::string(to_string(layout.dtype)),
                                            .advice = {}});
  }
}

void LayerCache::check_block(const KVBlock& block, const char* where) const {
  if (block.n_kv_heads() != layout_.n_kv_heads || block.head_dim() != layout_.head_dim) {
    throw Error(ErrorCode::shape_mismatch,
                {.where = where,
                 .expected = fmt::format("K and V [query_len, {}, {}]", layout_.n_kv_heads, layout_.head_dim),
                 .got = block.k().shape().to_string(),
                 .advice = {}});
  }
  if (block.dtype() != layout_.dtype) {
    throw Error(ErrorCode::dtype_mismatch,
                {.where = where,
                 .expected = fmt::format("a block in the cache's {}", to_string(layout_.dtype)),
                 .got = std::string(to_string(block.dtype())),
                 .advice = "make the block with KVBlock::round(k, v, cache.layout().dtype)"});
  }
}

void LayerCache::check_part(const KVBlock& block, int64_t first, int64_t count, const char* where) const {
  check_block(block, where);
  if (first >= 0 && count >= 1 && first <= block.query_len() - count) return;
  throw Error(ErrorCode::invalid_argument, {.where = where,
                                            .expected = fmt::format("a part of {} positions", block.query_len()),
                                            .got = fmt::format("{} positions from {}", count, first),
                                            .advice = {}});
}

void LayerCache::check_resume(int64_t position) const {
  if (can_resume_at(position)) return;
  throw Error(ErrorCode::invalid_argument,
              {.where = "cache truncate",
               .expected = "a position whose whole window is still held",
               .got = fmt::format("position {}; positions {} to {} are held", position, first_held(), offset_ - 1),
               .advice = "restore a snapshot, or start again from position 0"});
}

KVView LayerCache::fetch_and_concat(const KVBlock& block) const {
  check_block(block, "fetch_and_concat");
  KVView view = held();
  view.runs.push_back(
      {.k = block.k().raw(), .v = block.v().raw(), .first_position = offset_, .count = block.query_len()});
  return view;
}

void LayerCache::commit(const KVBlock& block, int64_t count) {
  check_block(block, "commit");
  if (count < 0 || count > block.query_len()) {
    throw Error(ErrorCode::invalid_argument, {.where = "commit",
                                              .expected = fmt::format("0 to {} positions", block.query_len()),
                                              .got = std::to_string(count),
                                              .advice = {}});
  }
  for (int64_t done = 0; done < count;) {
    const int64_t part = std::min(count - done, room_before_wrap());
    update(block, done, part);
    done += part;
  }
}

KVView LayerCache::update_and_fetch(const KVBlock& block) {
  check_block(block, "update_and_fetch");
  check_write_first(block.query_len(), is_ring());
  reserve(block.query_len());
  // The view before the write, since nothing may fail after it.
  try {
    KVView view = held_after(block.query_len());
    update(block);
    return view;
  } catch (...) {
    if (!is_ring()) truncate(offset_);  // what was reserved
    throw;
  }
}

void check_write_first(int64_t query_len, bool has_ring_state) {
  if (query_len < 1) {
    throw Error(
        ErrorCode::invalid_argument,
        {.where = "write-first step", .expected = "query_len >= 1", .got = std::to_string(query_len), .advice = {}});
  }
  if (query_len == 1 || !has_ring_state) return;
  throw Error(ErrorCode::write_first_needs_single_token,
              {.where = "write-first step",
               .expected = "query_len 1, since the write would evict keys that the step's own first queries still see",
               .got = fmt::format("query_len {} with a sliding ring", query_len),
               .advice = "take the concat path (fetch_and_concat, attend, update), or feed one token a step"});
}

}  // namespace slipring
