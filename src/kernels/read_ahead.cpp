#include "kernels/read_ahead.h"

namespace slipring {

std::span<const uint8_t* const> ReadAhead::reading(std::span<const uint8_t* const> starts) {
  if (matrices_.size() >= kMost) {
    matrices_.clear();
    last_ = nullptr;
  }
  const uint8_t* const name = starts[0];
  if (last_ != nullptr) matrices_[last_].next = name;
  last_ = name;
  Matrix& matrix = matrices_[name];
  matrix.starts.assign(starts.begin(), starts.end());
  const auto next = matrices_.find(matrix.next);
  if (next == matrices_.end()) return {};
  return next->second.starts;
}

}  // namespace slipring
