// What a layer's cache is to the rest of slipring, whether its layer slides (RingKVCache) or not (FullKVCache).
#pragma once

#include <cstddef>
#include <cstdint>

#include <slipring/kv_block.h>
#include <slipring/kv_view.h>

namespace slipring {

/// Layout of one position's keys (and of its values): [n_kv_heads, head_dim] in dtype.
struct KVLayout {
  int n_kv_heads = 0;
  int head_dim = 0;
  DType dtype = DType::F32;  ///< F32, F16 or BF16

  int64_t elements() const noexcept { return static_cast<int64_t>(n_kv_heads) * head_dim; }
  int64_t bytes() const noexcept { return bytes_of(dtype, elements()); }  ///< of K alone
  bool operator==(const KVLayout&) const = default;
};

/// Keys and values of one layer of one sequence. There are two ways through a step:
///
///   any Q       fetch_and_concat, attend, update     reads the cache as it was before the step
///   decode      update_and_fetch, attend             Q == 1 on a ring; the guard is check_write_first()
///
/// Every failing call leaves every byte as it was. Threads: reads may run together; a write needs the cache to itself.
class LayerCache {
 public:
  virtual ~LayerCache() = default;
  LayerCache(const LayerCache&) = delete;
  LayerCache& operator=(const LayerCache&) = delete;

  const KVLayout& layout() const noexcept { return layout_; }
  /// Positions written so far = absolute position of the next token. Never capped by a ring.
  int64_t offset() const noexcept { return offset_; }
  virtual bool is_ring() const noexcept = 0;
  /// Oldest position still held; offset() if none is.
  virtual int64_t first_held() const noexcept = 0;
  /// Longest update() that is legal now; a ring's write must not wrap.
  virtual int64_t room_before_wrap() const noexcept = 0;
  /// Memory of the keys and values, in bytes.
  virtual int64_t bytes_held() const noexcept = 0;

  /// Everything held, oldest first; no copy. Valid until the next write.
  KVView held() const { return held_after(0); }
  /// What held() will give once `count` more positions are written.
  /// @pre reserve(count) succeeded, and the write will not wrap
  virtual KVView held_after(int64_t count) const = 0;
  /// What a step sees: everything held, then the step's own keys. Read-only, no copy, any Q. The cost does not depend
  /// on the window. The view is valid until the next write and while `block` lives.
  /// @throws Error{shape_mismatch, dtype_mismatch} if the block does not have this layout
  virtual KVView fetch_and_concat(const KVBlock& block) const;

  /// Allocates what writing `count` more positions needs: after it update() and commit() of so many allocate nothing. A
  /// step does so for all layers before it writes the first. truncate(offset()) gives it back, except to a ring, which
  /// needs nothing.
  /// @throws Error{out_of_memory}; the cache is then as it was
  virtual void reserve(int64_t /*count*/) {}
  /// Writes the block at position offset() and advances the offset by its query_len.
  /// @throws as fetch_and_concat; Error{ring_write_wraps} with offset, query_len and capacity
  void update(const KVBlock& block) { update(block, 0, block.query_len()); }
  /// update() of positions first ... first + count - 1 of the block: the accepted part of a speculated step.
  /// @throws as update(block), and Error{invalid_argument} unless 0 <= first, 1 <= count and first + count <= query_len
  virtual void update(const KVBlock& block, int64_t first, int64_t count) = 0;
  /// Writes the first `count` positions of the block in as few updates as the ring allows; 0 writes nothing.
  /// @throws as update(), and Error{invalid_argument} if count is not in [0, query_len]; never ring_write_wraps
  void commit(const KVBlock& block, int64_t count);
  /// update(), then the view after it.
  /// @throws as update(), and Error{write_first_needs_single_token} if this is a ring and query_len > 1
  KVView update_and_fetch(const KVBlock& block);
  /// What the next update() of one position overwrites, copied, so that undo_update() can take it back: a step that
  /// writes first may yet fail. For rings; other caches overwrite nothing.
  /// @param to  [2 * layout().bytes()]: K, then V
  virtual void save_next_slot(std::byte* /*to*/) const noexcept {}
  /// The cache as it was before an update() of one position, byte for byte. For rings.
  /// @param saved  what save_next_slot() gave just before that update
  /// @pre nothing was written since
  virtual void undo_update(const std::byte* /*saved*/) noexcept {}

  /// Whether the cache can go back to `position` written positions and serve the next query from there: true if the
  /// whole window before it is still held. 0 is always possible, anything beyond offset() never.
  virtual bool can_resume_at(int64_t position) const noexcept = 0;
  /// Goes back to `position` written positions; the rest is forgotten.
  /// @throws Error{invalid_argument} unless can_resume_at(position)
  virtual void truncate(int64_t position) = 0;
  void clear() { truncate(0); }
  /// Becomes a cache of `offset` written positions of which `held` are the last ones, bit for bit: how a snapshot comes
  /// back. The slots follow from the positions, so a snapshot fits a ring of another capacity that is large enough.
  /// @param held  the last held.query_len() positions before offset. A ring needs the window - 1 that the next query
  /// sees
  ///              besides itself (or all, if fewer) and keeps the newest of them up to its capacity; a full cache needs
  ///              all
  /// @throws Error{shape_mismatch, dtype_mismatch, invalid_argument}; the cache is then as it was
  virtual void restore(int64_t offset, const KVBlock& held) = 0;

 protected:
  /// @throws Error{invalid_argument} for counts below 1, Error{dtype_mismatch} for another dtype; `where` names the
  /// class
  LayerCache(KVLayout layout, const char* where);
  void check_block(const KVBlock& block, const char* where) const;
  void check_part(const KVBlock& block, int64_t first, int64_t count, const char* where) const;
  void check_resume(int64_t position) const;

  KVLayout layout_;
  int64_t offset_ = 0;
};

}  // namespace slipring
