// What NativeOps holds between its calls. Private to native_*.cpp.
#pragma once

#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "ops/native_ops.h"

namespace slipring {

inline constexpr std::align_val_t kAlignment{64};

struct AlignedDelete {
  void operator()(float* p) const noexcept { ::operator delete(p, kAlignment); }
};

struct NativeOps::Buffer {
  std::unique_ptr<float, AlignedDelete> data;
  int64_t capacity = 0;  // floats
};

struct NativeOps::Slot {
  Buffer buffer;
  const float* values = nullptr;  // the buffer's, or the caller's for inputs
  int64_t rows = 0;
  int64_t cols = 0;
  int32_t references = 0;
  bool is_ids = false;
  std::optional<Activations> activations;  // x as the matmul kernels want it, made once for all maps that read it

  float* out() { return buffer.data.get(); }
};

struct NativeOps::RopeTable {
  Rope rope;
  std::vector<float> cos;  // [T, rotary_dim / 2]
  std::vector<float> sin;
};

struct NativeOps::PendingLayer {
  int32_t k_id = -1;
  std::vector<KVBlock> blocks;  // one a sequence
  bool update = false;          // the model asked for the write
};

struct NativeOps::Overwritten {
  LayerCache* cache;
  size_t sequence;
  size_t saved_at;
};

}  // namespace slipring
