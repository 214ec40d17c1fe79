// The cache of a sliding-window layer: a ring of slots.
#pragma once

#include <cstdint>

#include <slipring/layer_cache.h>
#include <slipring/ring.h>
#include <slipring/tensor.h>

namespace slipring {

/// Keys and values of one sliding-window layer of one sequence, in a ring of `capacity` slots.
///
/// Position p lives in slot p % capacity, so once `capacity` positions were written each write evicts the oldest. A
/// step of Q tokens at `offset` evicts positions offset - capacity ... offset - capacity + Q - 1, of which its own
/// first query still needs those above offset - window. Hence the two ways in (LayerCache): read first for any Q, write
/// first for one token, whose evicted position has just left the window.
///
/// Memory is exactly 2 * capacity * n_kv_heads * head_dim * size(dtype) bytes, allocated once.
/// Source: Mistral 7B (arXiv 2310.06825), rolling buffer cache; docs/ring.md for why writes come last.
class RingKVCache final : public LayerCache {
 public:
  /// @param capacity  slots, any number >= window
  /// @param window    keys a query sees, itself included, >= 1
  /// @throws Error{invalid_argument} naming the numbers, Error{dtype_mismatch} unless F32, F16 or BF16
  RingKVCache(int64_t capacity, int64_t window, KVLayout layout);

  int64_t capacity() const noexcept { return capacity_; }
  int64_t window() const noexcept { return window_; }
  /// The next step of query_len tokens, as one value: its masks and position rule come from here.
  ring::Step step(int64_t query_len) const {
    return {.offset = offset_, .query_len = query_len, .capacity = capacity_, .window = window_};
  }
  /// The raw slots [capacity, n_kv_heads, head_dim]: what an exported program holds as its state. A slot that was never
  /// written is zero.
  const Tensor& k_slots() const noexcept { return k_; }
  const Tensor& v_slots() const noexcept { return v_; }

  bool is_ring() const noexcept override { return true; }
  int64_t first_held() const noexcept override;
  int64_t room_before_wrap() const noexcept override { return ring::room_before_wrap(offset_, capacity_); }
  int64_t bytes_held() const noexcept override { return k_.bytes() + v_.bytes(); }
  KVView held_after(int64_t count) const override;
  using LayerCache::update;
  /// plan_steps() cuts any prompt so that no write wraps.
  /// @throws as LayerCache::update: Error{ring_write_wraps} unless offset % capacity + count <= capacity
  void update(const KVBlock& block, int64_t first, int64_t count) override;
  void save_next_slot(std::byte* to) const noexcept override;
  void undo_update(const std::byte* saved) noexcept override;
  bool can_resume_at(int64_t position) const noexcept override;
  void truncate(int64_t position) override;
  void restore(int64_t offset, const KVBlock& held) override;

 private:
  /// @pre the `count` positions of the block lie in one run of slots from `position` on
  void write(int64_t position, const KVBlock& block, int64_t first, int64_t count) noexcept;
  void fill_with_zeros() noexcept;

  int64_t capacity_;
  int64_t window_;
  /// After truncate() the slots of the forgotten positions hold nothing valid: what was there before them is gone.
  int64_t oldest_valid_ = 0;
  Tensor k_;
  Tensor v_;
};

}  // namespace slipring
