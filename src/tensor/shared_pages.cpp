#include "tensor/shared_pages.h"

#include <algorithm>

#include "tensor/huge_region.h"

namespace slipring {
namespace {

thread_local SharedPages* current = nullptr;

}  // namespace

SharedPages::SharedPages() : active_(current == nullptr) {
  if (active_) current = this;
}

SharedPages::~SharedPages() {
  if (active_) current = nullptr;
}

std::shared_ptr<const void> SharedPages::allocate(size_t size) noexcept {
  if (current == nullptr || size < kLeast) return nullptr;
  try {
    std::shared_ptr<HugeRegion>& region = current->region_;
    void* memory = region ? region->take(size) : nullptr;
    if (memory == nullptr) {
      auto next = std::make_shared<HugeRegion>(std::max(size, HugeRegion::kUsual));
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
