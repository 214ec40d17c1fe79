// Which weights a decode step will read next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace slipring {

/// Learns the order in which matrices are read: the same from step to step. So what comes after a matrix is what came
/// after it the last time. Addresses are compared and handed out, never read through: they may be those of a model that
/// is long gone. A wrong guess costs a little bandwidth. Threads: one at a time.
class ReadAhead {
 public:
  /// @param starts  where each worker begins to read; not empty; starts[0] names the matrix
  /// @return where each worker will probably begin to read next; empty if that is not known
  std::span<const uint8_t* const> reading(std::span<const uint8_t* const> starts);

 private:
  static constexpr size_t kMost = 4096;  ///< matrices remembered; beyond it all are forgotten

  struct Matrix {
    std::vector<const uint8_t*> starts;
    const uint8_t* next = nullptr;
  };
  std::unordered_map<const uint8_t*, Matrix> matrices_;
  const uint8_t* last_ = nullptr;
};

}  // namespace slipring
