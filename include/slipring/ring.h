// The arithmetic of a ring: which slot, which position, which runs. Integers only, no tensors; everything in slipring
// that knows how a ring is laid out knows it from here. docs/ring.md explains it with a drawing.
#pragma once

#include <cstddef>
#include <cstdint>

#include <slipring/kv_view.h>
#include <slipring/symint.h>

namespace slipring::ring {

// The formulas are templates: Int is int64_t in the engine, SymInt where an index is traced, or any type of a tracer
// that has + - % and comparisons (a tensor of all slots at once, for a mask). So the engine, the exported program and
// the masks compute the same thing by construction.

/// Slot of a position. @pre position >= 0
template <class Int>
Int slot_of(const Int& position, const Int& capacity) {
  return position % capacity;
}

/// Position that `slot` holds once positions 0 ... end - 1 were written: the newest p < end with p % capacity == slot,
/// found by walking back from end - 1. Negative (slot - capacity) for a slot that was never written. The capacity is
/// added before the remainder is taken, so its operand is never negative, not even at end 0 where the walk starts at
/// -1. @pre 0 <= slot < capacity, end >= 0
template <class Int>
Int position_in_slot(const Int& slot, const Int& end, const Int& capacity) {
  return end - 1 - (end - 1 + capacity - slot) % capacity;
}

/// Position in `slot` as a step finds it, before its write: walk back from offset - 1.
template <class Int>
Int position_before_write(const Int& slot, const Int& offset, const Int& capacity) {
  return position_in_slot(slot, offset, capacity);
}

/// Position in `slot` as a step of query_len tokens leaves it, after its write: walk back from offset + query_len - 1.
template <class Int>
Int position_after_write(const Int& slot, const Int& offset, const Int& query_len, const Int& capacity) {
  return position_in_slot(slot, Int(offset + query_len), capacity);
}

/// Positions that the queries of one step see together: the first sees `window` keys, each further query one more.
/// Every correct sliding cache meets in this identity: a ring that is written before it is read needs this many slots.
template <class Int>
Int visible_span(const Int& window, const Int& query_len) {
  return window + query_len - 1;
}

/// Whether a query at position `query` sees the key at position `key`: written, not in the future, and inside the
/// window, which counts the query itself. A key position below 0 means an empty slot.
template <class Int>
auto sees(const Int& query, const Int& key, const Int& window) {
  return (key >= Int(0)) & (key <= query) & (query - key < window);
}

/// `count` slots that follow each other in memory and hold consecutive positions.
struct SlotRun {
  int64_t slot = 0;            ///< first slot
  int64_t first_position = 0;  ///< position in that slot
  int64_t count = 0;           ///< slots, >= 1; slot + count <= capacity

  bool operator==(const SlotRun&) const = default;
};

/// At most two runs, oldest first, in place: finding out where a write goes allocates nothing.
class SlotRuns {
 public:
  /// @pre size() < 2
  void push_back(const SlotRun& run) noexcept { runs_[size_++] = run; }
  const SlotRun* begin() const noexcept { return runs_; }
  const SlotRun* end() const noexcept { return runs_ + size_; }
  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

 private:
  SlotRun runs_[2];
  size_t size_ = 0;
};

/// Positions first ... end - 1 as runs, oldest first: none if first == end, at most two, since end - first <= capacity.
/// The same runs serve for reading and for writing.
/// @throws Error{invalid_argument} unless 0 <= first <= end, 1 <= capacity and end - first <= capacity
SlotRuns runs(int64_t first, int64_t end, int64_t capacity);

/// Slots left before the physical end of the ring: the longest step that may be written at `offset`.
int64_t room_before_wrap(int64_t offset, int64_t capacity);

/// What one sliding layer does in one step: the value from which storage, position rule and both masks are derived, so
/// that they cannot disagree. offset and query_len may be symbolic; capacity and window are the layer's.
struct Step {
  SymInt offset;     ///< positions written before the step = position of its first query
  SymInt query_len;  ///< tokens of the step
  int64_t capacity = 0;
  int64_t window = 0;

  /// Where the write begins: offset % capacity.
  SymInt write_begin() const { return slot_of<SymInt>(offset, capacity); }
  /// Positions once the step is written: offset + query_len.
  SymInt seq_len() const { return offset + query_len; }
  /// Which keys a query sees, for kernels.
  PositionRule rule() const noexcept { return PositionRule::window(window); }
};

/// @throws Error{invalid_argument} unless capacity >= 1 and 1 <= window <= capacity; `where` names the caller
void check_geometry(int64_t capacity, int64_t window, const char* where);

}  // namespace slipring::ring
