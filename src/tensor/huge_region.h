// Address space in huge pages, handed out from front to back.
#pragma once

#include <cstddef>

namespace slipring {

/// Resident only where it was touched; zeroed by the system. Threads: one at a time.
class HugeRegion {
 public:
  static constexpr size_t kUsual = size_t{64} << 20;

  /// Maps at least `size` bytes; take() gives null if the system has none.
  explicit HugeRegion(size_t size) noexcept;
  ~HugeRegion();
  HugeRegion(const HugeRegion&) = delete;
  HugeRegion& operator=(const HugeRegion&) = delete;

  /// The next `size` bytes, aligned to 64; null if they do not fit.
  void* take(size_t size) noexcept;

 private:
  size_t span_;
  void* raw_ = nullptr;
  std::byte* start_ = nullptr;
  size_t size_ = 0;
  size_t used_ = 0;
};

}  // namespace slipring
