#include "tensor/huge_region.h"

#include <algorithm>
#include <cstdint>
#include <sys/mman.h>

namespace slipring {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;
constexpr size_t kAlignment = 64;

size_t round_up(size_t size, size_t unit) {
  return (size + unit - 1) / unit * unit;
}

}  // namespace

HugeRegion::HugeRegion(size_t size) noexcept : span_(round_up(size, kHugePage) + kHugePage) {
  void* raw = mmap(nullptr, span_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return;
  raw_ = raw;
  const auto address = reinterpret_cast<uintptr_t>(raw);
  start_ = static_cast<std::byte*>(raw) + (kHugePage - address % kHugePage) % kHugePage;
  size_ = span_ - kHugePage;
  madvise(start_, size_, MADV_HUGEPAGE);  // a hint: without it all is well but slower
}

HugeRegion::~HugeRegion() {
  if (raw_ != nullptr) munmap(raw_, span_);
}

void* HugeRegion::take(size_t size) noexcept {
  if (raw_ == nullptr || size > size_ - used_) return nullptr;
  void* result = start_ + used_;
  used_ = std::min(size_, used_ + round_up(size, kAlignment));
  return result;
}

}  // namespace slipring
