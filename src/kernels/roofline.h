// What this machine can do at most, measured: the roofs that benchmarks compare with.
#pragma once

#include <cstdint>

#include <slipring/tensor.h>

#include "kernels/thread_pool.h"

namespace slipring {

/// How fast this machine reads memory at the moment. On a shared machine that changes from second to second, so a share
/// of the bandwidth is only true if the bandwidth was measured next to what is compared with it.
class ReadProbe {
 public:
  static constexpr int64_t kBytes = int64_t{256} << 20;  ///< far more than caches hold

  /// Allocates and fills kBytes. Throws out_of_memory.
  ReadProbe();
  /// Bytes a second of all threads reading the whole buffer once, each its own part. Takes about 10 ms.
  double bytes_per_s(ThreadPool& pool);

 private:
  Tensor buffer_;
};

struct Roofline {
  double read_bytes_per_s;      ///< all threads reading memory that no cache holds
  double float_macs_per_s;      ///< float32 fused multiply-adds in registers
  double quantised_macs_per_s;  ///< int8 dot products in registers, as the current target does them
};

/// Takes about half a second. The best of several short runs, so that other load on the machine counts little.
Roofline measure_roofline(ThreadPool& pool);

}  // namespace slipring
