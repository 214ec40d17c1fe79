#include "failing_allocation.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace slipring::testing {
namespace {

enum Mode : int { off, mine, others };

std::atomic<int> mode{off};
std::atomic<int64_t> failing{0};
std::atomic<int64_t> count{0};
thread_local bool is_tester = false;

bool fails() noexcept {
  const int now = mode.load(std::memory_order_acquire);
  if (now == off || (now == mine) != is_tester) return false;
  return count.fetch_add(1) + 1 == failing.load();
}

void* allocate(std::size_t size, std::size_t alignment) noexcept {
  if (fails()) return nullptr;
  size = std::max<std::size_t>(size, 1);
  // malloc and free, so that a sanitizer still sees every block.
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  if (void* memory = allocate(size, alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

FailingAllocation::FailingAllocation(int64_t nth, Of of) noexcept : nth_(nth) {
  is_tester = true;
  failing = nth;
  count = 0;
  mode.store(of == Of::this_thread ? mine : others, std::memory_order_release);
}

FailingAllocation::~FailingAllocation() {
  mode.store(off, std::memory_order_release);
  is_tester = false;
}

int64_t FailingAllocation::seen() const noexcept {
  return count.load();
}

}  // namespace slipring::testing

// All forms: where a sanitizer's own stay in place, what they allocate must not come to these.
using slipring::testing::allocate;
using slipring::testing::allocate_or_throw;
constexpr std::size_t kUsual = alignof(std::max_align_t);

void* operator new(std::size_t size) {
  return allocate_or_throw(size, kUsual);
}
void* operator new[](std::size_t size) {
  return allocate_or_throw(size, kUsual);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, kUsual);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, kUsual);
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
  std::free(p);
}
void operator delete[](void* p, const std::nothrow_t&) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(p);
}
