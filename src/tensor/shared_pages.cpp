#include "tensor/shared_pages.h"

#include <algorithm>
#include <cstdint>
#include <sys/mman.h>

namespace slipring {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;
constexpr size_t kRegion = size_t{64} << 20;  // address space: what is never touched is never resident
constexpr size_t kAlignment = 64;

size_t round_up(size_t size, size_t unit) {
  return (size + unit - 1) / unit * unit;
}

thread_local SharedPages* current = nullptr;

}  // namespace

class SharedPages::Region {
 public:
  explicit Region(size_t size) : span_(round_up(size, kHugePage) + kHugePage) {
    void* raw = mmap(nullptr, span_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return;
    raw_ = raw;
    const auto address = reinterpret_cast<uintptr_t>(raw);
    start_ = static_cast<std::byte*>(raw) + (kHugePage - address % kHugePage) % kHugePage;
    size_ = span_ - kHugePage;
    madvise(start_, size_, MADV_HUGEPAGE);  // a hint: without it all is well but slower
  }
  ~Region() {
    if (raw_ != nullptr) munmap(raw_, span_);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  /// The next `size` bytes, which the kernel has zeroed; null if they do not fit.
  void* take(size_t size) noexcept {
    if (raw_ == nullptr || size > size_ - used_) return nullptr;
    void* result = start_ + used_;
    used_ = std::min(size_, used_ + round_up(size, kAlignment));
    return result;
  }

 private:
  size_t span_;
  void* raw_ = nullptr;
  std::byte* start_ = nullptr;
  size_t size_ = 0;
  size_t used_ = 0;
};

SharedPages::SharedPages() : active_(current == nullptr) {
  if (active_) current = this;
}

SharedPages::~SharedPages() {
  if (active_) current = nullptr;
}

std::shared_ptr<const void> SharedPages::allocate(size_t size) noexcept {
  if (current == nullptr || size < kLeast) return nullptr;
  try {
    std::shared_ptr<Region>& region = current->region_;
    void* memory = region ? region->take(size) : nullptr;
    if (memory == nullptr) {
      auto next = std::make_shared<Region>(std::max(size, kRegion));
      memory = next->take(size);
      if (memory == nullptr) return nullptr;
      region = std::move(next);
    }
    return {region, memory};
  } catch (...) {
    return nullptr;
  }
}

}  // namespace slipring
