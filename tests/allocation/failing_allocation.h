// Want of memory at a chosen allocation: the operators of this program's global new ask here first.
#pragma once

#include <cstdint>

namespace slipring::testing {

/// While it lives the `nth` allocation (from 1 on) fails, once. One at a time.
class FailingAllocation {
 public:
  /// Whose allocations count.
  enum class Of : uint8_t { this_thread, other_threads };
  /// nth 0: none fails, they are only counted.
  explicit FailingAllocation(int64_t nth, Of of = Of::this_thread) noexcept;
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  /// Allocations so far.
  int64_t seen() const noexcept;
  bool failed() const noexcept { return nth_ > 0 && seen() >= nth_; }

 private:
  int64_t nth_;
};

}  // namespace slipring::testing
