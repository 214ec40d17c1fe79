#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include <slipring/error.h>
#include <slipring/ring_kv_cache.h>

#include "cache/invariants.h"

namespace slipring {
namespace {

int64_t checked_capacity(int64_t capacity, int64_t window) {
  ring::check_geometry(capacity, window, "RingKVCache");
  return capacity;
}

const std::byte* row(const Tensor& x, int64_t index, const KVLayout& layout) noexcept {
  return static_cast<const std::byte*>(x.raw()) + index * layout.bytes();
}

std::byte* row(Tensor& x, int64_t index, const KVLayout& layout) noexcept {
  return static_cast<std::byte*>(x.raw()) + index * layout.bytes();
}

}  // namespace

RingKVCache::RingKVCache(int64_t capacity, int64_t window, KVLayout layout)
    : LayerCache(layout, "RingKVCache"),
      capacity_(checked_capacity(capacity, window)),
      window_(window),
      k_(layout.dtype, {capacity, layout.n_kv_heads, layout.head_dim}),
      v_(layout.dtype, {capacity, layout.n_kv_heads, layout.head_dim}) {}

int64_t RingKVCache::first_held() const noexcept {
  return std::max(oldest_valid_, offset_ - capacity_);
}

KVView RingKVCache::held_after(int64_t count) const {
  const int64_t end = offset_ + count;
  KVView view{.dtype = layout_.dtype, .n_kv_heads = layout_.n_kv_heads, .head_dim = layout_.head_dim, .runs = {}};
  view.runs.reserve(3);  // two of the ring and the step's own
  for (const ring::SlotRun& run : ring::runs(std::max(oldest_valid_, end - capacity_), end, capacity_)) {
    view.runs.push_back({.k = row(k_, run.slot, layout_),
                         .v = row(v_, run.slot, layout_),
                         .first_position = run.first_position,
                         .count = run.count});
  }
  return view;
}

void RingKVCache::write(int64_t position, const KVBlock& block, int64_t first, int64_t count) noexcept {
  const int64_t slot = ring::slot_of(position, capacity_);
  const auto bytes = static_cast<size_t>(count * layout_.bytes());
  std::memcpy(row(k_, slot, layout_), row(block.k(), first, layout_), bytes);
  std::memcpy(row(v_, slot, layout_), row(block.v(), first, layout_), bytes);
}

void RingKVCache::fill_with_zeros() noexcept {
  std::memset(k_.raw(), 0, static_cast<size_t>(k_.bytes()));
  std::memset(v_.raw(), 0, static_cast<size_t>(v_.bytes()));
}

void RingKVCache::update(const KVBlock& block, int64_t first, int64_t count) {
  check_part(block, first, count, "RingKVCache::update");
  if (count > room_before_wrap()) {
    throw Error(ErrorCode::ring_write_wraps,
                {.where = "RingKVCache::update",
                 .expected = fmt::format("at most {} tokens up to the ring's end", room_before_wrap()),
                 .got = fmt::format("query_len {} at offset {} (slot {}) of capacity {}", count, offset_,
                                    ring::slot_of(offset_, capacity_), capacity_),
                 .advice = "cut the prompt with plan_steps(), or commit() in two parts"});
  }
  write(offset_, block, first, count);
  offset_ += count;
  check_invariants(*this);
}

void RingKVCache::save_next_slot(std::byte* to) const noexcept {
  const int64_t slot = ring::slot_of(offset_, capacity_);
  const auto bytes = static_cast<size_t>(layout_.bytes());
  std::memcpy(to, row(k_, slot, layout_), bytes);
  std::memcpy(to + bytes, row(v_, slot, layout_), bytes);
}

void RingKVCache::undo_update(const std::byte* saved) noexcept {
  --offset_;
  const int64_t slot = ring::slot_of(offset_, capacity_);
  const auto bytes = static_cast<size_t>(layout_.bytes());
  std::memcpy(row(k_, slot, layout_), saved, bytes);
  std::memcpy(row(v_, slot, layout_), saved + bytes, bytes);
}

bool RingKVCache::can_resume_at(int64_t position) const noexcept {
  if (position < 0 || position > offset_) return false;
  const int64_t first_needed = std::max<int64_t>(0, position - window_ + 1);
  return first_needed == position || first_needed >= first_held();
}

void RingKVCache::truncate(int64_t position) {
  check_resume(position);
  if (position == 0) fill_with_zeros();
  oldest_valid_ = std::min(first_held(), position);
  offset_ = position;
  check_invariants(*this);
}

void RingKVCache::restore(int64_t offset, const KVBlock& held) {
  check_block(held, "RingKVCache::restore");
  const int64_t count = held.query_len();
  if (count > offset || count < std::min(offset, window_ - 1)) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "RingKVCache::restore",
                 .expected = fmt::format("the last {} to {} positions", std::min(offset, window_ - 1), offset),
                 .got = fmt::format("{} positions for offset {} and window {}", count, offset, window_),
                 .advice = {}});
  }
  const auto* own = static_cast<const std::byte*>(k_.raw());
  const auto* given = static_cast<const std::byte*>(held.k().raw());
  if (given >= own && given < own + k_.bytes()) {
    throw Error(ErrorCode::invalid_argument, {.where = "RingKVCache::restore",
                                              .expected = "keys outside this cache",
                                              .got = "a view of its own slots",
                                              .advice = "copy the held positions first"});
  }
  // From here on nothing allocates or fails.
  fill_with_zeros();
  const int64_t first = std::max(offset - count, offset - capacity_);
  for (const ring::SlotRun& run : ring::runs(first, offset, capacity_)) {
    write(run.first_position, held, run.first_position - (offset - count), run.count);
  }
  oldest_valid_ = first;
  offset_ = offset;
  check_invariants(*this);
}

}  // namespace slipring
