#include "tensor/page_pool.h"

#include <algorithm>
#include <cstring>

namespace slipring {

Tensor PagePool::tensor(DType dtype, const Shape& shape) {
  const auto size = static_cast<size_t>(bytes_of(dtype, shape.elements()));
  void* memory = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (size_ == 0) size_ = size;
    if (size == size_ && from_heap_ >= kFromHeap) memory = take(size);
    if (memory == nullptr) from_heap_ += size;
  }
  if (memory == nullptr) return {dtype, shape};
  const auto give_back = [pool = shared_from_this()](const void* p) {
    const std::lock_guard lock(pool->mutex_);
    pool->free_.push_back(const_cast<void*>(p));  // NOLINT: it was handed out as mutable; room was reserved in take()
  };
  return Tensor::view(dtype, shape, memory, std::shared_ptr<const void>(memory, give_back));
}

void* PagePool::take(size_t size) noexcept {
  try {
    if (!free_.empty()) {
      void* memory = free_.back();
      free_.pop_back();
      std::memset(memory, 0, size);
      return memory;
    }
    void* memory = regions_.empty() ? nullptr : regions_.back()->take(size);
    if (memory == nullptr) {
      regions_.push_back(std::make_unique<HugeRegion>(std::max(size, HugeRegion::kUsual)));
      memory = regions_.back()->take(size);
    }
    // Every page that is out may come back, and coming back may not fail.
    free_.reserve(regions_.size() * (std::max(size, HugeRegion::kUsual) / size + 1));
    return memory;
  } catch (...) {
    return nullptr;
  }
}

}  // namespace slipring
