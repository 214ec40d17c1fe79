// Small parts of snapshots: copies of what a cache holds, and numbers to bytes.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include <slipring/layer_cache.h>

#include "formats/byte_cursor.h"

namespace slipring {

/// A copy of positions `first` ... offset() - 1. @pre first_held() <= first < offset()
KVBlock copy_positions(const LayerCache& cache, int64_t first);

/// `count` positions from bytes: all keys, then all values. @throws Error{bad_file} if they are not there
/// @pre count >= 1
KVBlock read_positions(ByteCursor& cursor, const KVLayout& layout, int64_t count);

/// Appends to a vector of bytes, little-endian.
class ByteAppender {
 public:
  explicit ByteAppender(std::vector<std::byte>& out) : out_(out) {}
  void bytes(std::span<const std::byte> bytes);
  template <class T>
  void number(T value) {
    bytes(std::as_bytes(std::span(&value, 1)));
  }

 private:
  std::vector<std::byte>& out_;
};

}  // namespace slipring
