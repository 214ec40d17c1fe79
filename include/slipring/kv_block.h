// The keys and values that one step of one layer adds, already in the cache's own precision.
#pragma once

#include <cstdint>

#include <slipring/dtype.h>
#include <slipring/tensor.h>

namespace slipring {

/// New keys and values of one sequence and layer, rounded to the cache dtype before anyone sees them: reading them from
/// the block now or from the cache later gives the same bits. The block owns (or shares) its storage, so many layers
/// may be computed and any number of leading positions committed later. Copies share storage. Threads: immutable once
/// made.
class KVBlock {
 public:
  /// Rounds to nearest even. For F32 nothing is copied: the block shares the storage of k and v.
  /// @param k,v    [query_len, n_kv_heads, head_dim] float32, query_len >= 1
  /// @param dtype  F32, F16 or BF16
  /// @throws Error{shape_mismatch, dtype_mismatch} naming what was given
  static KVBlock round(const Tensor& k, const Tensor& v, DType dtype);
  /// Takes K and V that are in a cache dtype already, e.g. from a snapshot. Shares their storage.
  static KVBlock of(const Tensor& k, const Tensor& v);

  DType dtype() const noexcept { return k_.dtype(); }
  int64_t query_len() const noexcept { return k_.shape()[0]; }
  int n_kv_heads() const noexcept { return static_cast<int>(k_.shape()[1]); }
  int head_dim() const noexcept { return static_cast<int>(k_.shape()[2]); }
  const Tensor& k() const noexcept { return k_; }  ///< [query_len, n_kv_heads, head_dim] in dtype()
  const Tensor& v() const noexcept { return v_; }  ///< [query_len, n_kv_heads, head_dim] in dtype()

  /// Positions first ... first + count - 1 of the block; no copy, shares the storage.
  /// @throws Error{invalid_argument} unless 0 <= first, 1 <= count and first + count <= query_len
  KVBlock slice(int64_t first, int64_t count) const;

 private:
  KVBlock(Tensor k, Tensor v) : k_(std::move(k)), v_(std::move(v)) {}

  Tensor k_;
  Tensor v_;
};

}  // namespace slipring
