// Large pages for tensors that are read from end to end, again and again.
#pragma once

#include <cstddef>
#include <memory>

namespace slipring {

class HugeRegion;

/// While one lives, tensors of kLeast bytes or more that its thread makes are cut from common regions of huge pages,
/// where the system gives them. Weights and rings are streamed for every token, and in pages of 4 KiB the look-ups of
/// their addresses hold the stream back, in a virtual machine most of all. A region goes back to the system when the
/// last of its tensors is gone, so what is made under one scope should live and die together: a model's weights, a
/// sequence's rings. Scopes do not nest: an inner one has no effect.
class SharedPages {
 public:
  static constexpr size_t kLeast = size_t{16} << 10;

  SharedPages();
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  /// Zeroed memory aligned to 64 bytes from this thread's scope; null without a scope, for less than kLeast, or if the
  /// system has none (the caller then allocates as usual).
  static std::shared_ptr<const void> allocate(size_t size) noexcept;

 private:
  std::shared_ptr<HugeRegion> region_;
  bool active_ = false;
};

}  // namespace slipring
