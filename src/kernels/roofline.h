// What this machine can do at most, measured: the roofs that benchmarks compare with.
#pragma once

#include "kernels/thread_pool.h"

namespace slipring {

struct Roofline {
  double read_bytes_per_s;      ///< all threads reading memory that no cache holds
  double float_macs_per_s;      ///< float32 fused multiply-adds in registers
  double quantised_macs_per_s;  ///< int8 dot products in registers, as the current target does them
};

/// Takes about half a second. The best of several short runs, so that other load on the machine counts little.
Roofline measure_roofline(ThreadPool& pool);

}  // namespace slipring
