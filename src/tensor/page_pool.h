// Memory for tensors of one size that come and go with one owner: the pages of a sequence's growing caches.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <slipring/tensor.h>

#include "tensor/huge_region.h"

namespace slipring {

/// Tensors from common regions of huge pages (SharedPages tells why); what is given back is handed out again, and the
/// regions go back to the system with the pool and the last of its tensors. The first few megabytes come from the heap,
/// as huge pages would only round a short sequence up. Threads: any.
class PagePool : public std::enable_shared_from_this<PagePool> {
 public:
  static std::shared_ptr<PagePool> make() { return std::shared_ptr<PagePool>(new PagePool); }

  /// Zeroed. @throws as Tensor's constructor
  Tensor tensor(DType dtype, const Shape& shape);

 private:
  static constexpr size_t kFromHeap = size_t{4} << 20;

  PagePool() = default;
  void* take(size_t size) noexcept;

  std::mutex mutex_;
  std::vector<std::unique_ptr<HugeRegion>> regions_;
  std::vector<void*> free_;  // each of size_ bytes
  size_t size_ = 0;
  size_t from_heap_ = 0;
};

}  // namespace slipring
