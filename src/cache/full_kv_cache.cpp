#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <limits>

#include <slipring/error.h>
#include <slipring/full_kv_cache.h>

#include "cache/invariants.h"
#include "tensor/page_pool.h"

namespace slipring {

FullKVCache::FullKVCache(KVLayout layout, std::shared_ptr<PagePool> pool)
    : LayerCache(layout, "FullKVCache"), pool_(std::move(pool)) {}

int64_t FullKVCache::room_before_wrap() const noexcept {
  return std::numeric_limits<int64_t>::max() - offset_;
}

int64_t FullKVCache::bytes_held() const noexcept {
  return static_cast<int64_t>(pages_.size()) * kPagePositions * layout_.bytes() * 2;
}

KVView FullKVCache::held_after(int64_t count) const {
  const int64_t end = offset_ + count;
  KVView view{.dtype = layout_.dtype, .n_kv_heads = layout_.n_kv_heads, .head_dim = layout_.head_dim, .runs = {}};
  view.runs.reserve(pages_.size() + 1);
  for (int64_t first = 0; first < end; first += kPagePositions) {
    const Page& page = pages_[static_cast<size_t>(first / kPagePositions)];
    view.runs.push_back({.k = page.k.raw(),
                         .v = page.v.raw(),
                         .first_position = first,
                         .count = std::min(kPagePositions, end - first)});
  }
  return view;
}

void FullKVCache::allocate(std::vector<Page>& pages, int64_t positions) const {
  const Shape shape{kPagePositions, layout_.n_kv_heads, layout_.head_dim};
  while (static_cast<int64_t>(pages.size()) * kPagePositions < positions) {
    const auto page = [&] { return pool_ ? pool_->tensor(layout_.dtype, shape) : Tensor(layout_.dtype, shape); };
    pages.push_back({.k = page(), .v = page()});
  }
}

void FullKVCache::write(std::vector<Page>& pages, int64_t position, const KVBlock& block, int64_t first, int64_t count,
                        const KVLayout& layout) noexcept {
  const int64_t row = layout.bytes();
  for (int64_t done = 0; done < count;) {
    Page& page = pages[static_cast<size_t>((position + done) / kPagePositions)];
    const int64_t at = (position + done) % kPagePositions;
    const int64_t part = std::min(kPagePositions - at, count - done);
    const auto bytes = static_cast<size_t>(part * row);
    std::memcpy(static_cast<std::byte*>(page.k.raw()) + at * row,
                static_cast<const std::byte*>(block.k().raw()) + (first + done) * row, bytes);
    std::memcpy(static_cast<std::byte*>(page.v.raw()) + at * row,
                static_cast<const std::byte*>(block.v().raw()) + (first + done) * row, bytes);
    done += part;
  }
}

void FullKVCache::reserve(int64_t count) {
  const size_t pages_before = pages_.size();
  try {
    allocate(pages_, offset_ + count);
  } catch (...) {
    pages_.resize(pages_before);
    throw;
  }
}

void FullKVCache::update(const KVBlock& block, int64_t first, int64_t count) {
  check_part(block, first, count, "FullKVCache::update");
  reserve(count);
  write(pages_, offset_, block, first, count, layout_);
  offset_ += count;
  check_invariants(*this);
}

void FullKVCache::truncate(int64_t position) {
  check_resume(position);
  pages_.resize(static_cast<size_t>((position + kPagePositions - 1) / kPagePositions));
  offset_ = position;
  check_invariants(*this);
}

void FullKVCache::restore(int64_t offset, const KVBlock& held) {
  check_block(held, "FullKVCache::restore");
  if (held.query_len() != offset) {
    throw Error(ErrorCode::invalid_argument, {.where = "FullKVCache::restore",
                                              .expected = fmt::format("all {} positions", offset),
                                              .got = fmt::format("{} positions", held.query_len()),
                                              .advice = {}});
  }
  std::vector<Page> pages;
  allocate(pages, offset);
  write(pages, 0, held, 0, offset, layout_);
  pages_ = std::move(pages);
  offset_ = offset;
  check_invariants(*this);
}

}  // namespace slipring
