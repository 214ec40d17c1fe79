#include "engine/state_bytes.h"

#include <algorithm>

namespace slipring {

KVBlock copy_positions(const LayerCache& cache, int64_t first) {
  const KVLayout& layout = cache.layout();
  const Shape shape{cache.offset() - first, layout.n_kv_heads, layout.head_dim};
  Tensor k(layout.dtype, shape);
  Tensor v(layout.dtype, shape);
  const int64_t row = layout.bytes();
  int64_t done = 0;
  for (const KVRun& run : cache.held().runs) {
    const int64_t skip = std::max<int64_t>(0, first - run.first_position);
    if (skip >= run.count) continue;
    const auto bytes = static_cast<size_t>((run.count - skip) * row);
    std::memcpy(static_cast<std::byte*>(k.raw()) + done * row, static_cast<const std::byte*>(run.k) + skip * row,
                bytes);
    std::memcpy(static_cast<std::byte*>(v.raw()) + done * row, static_cast<const std::byte*>(run.v) + skip * row,
                bytes);
    done += run.count - skip;
  }
  return KVBlock::of(k, v);
}

KVBlock read_positions(ByteCursor& cursor, const KVLayout& layout, int64_t count) {
  const auto row = static_cast<uint64_t>(layout.bytes());
  // Division, not multiplication: a count from a file may be anything.
  if (static_cast<uint64_t>(count) > cursor.left() / 2 / row) {
    throw_bad_file(cursor.where(),
                   fmt::format("{} positions of keys and values with {} bytes left", count, cursor.left()),
                   fmt::format("{} bytes for each position", 2 * row), "the file is cut short or damaged");
  }
  const Shape shape{count, layout.n_kv_heads, layout.head_dim};
  Tensor k(layout.dtype, shape);
  Tensor v(layout.dtype, shape);
  for (Tensor* tensor : {&k, &v}) {
    const auto bytes = cursor.take(static_cast<uint64_t>(count) * row, "keys and values");
    std::memcpy(tensor->raw(), bytes.data(), bytes.size());
  }
  return KVBlock::of(k, v);
}

void ByteAppender::bytes(std::span<const std::byte> bytes) {
  out_.insert(out_.end(), bytes.begin(), bytes.end());
}

}  // namespace slipring
