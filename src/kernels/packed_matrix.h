// A weight matrix laid out for the matmul kernels, and y = x * W^T with it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include <slipring/tensor.h>

#include "kernels/thread_pool.h"

namespace slipring {

/// Rows (output features) are interleaved in tiles of 16 so that one SIMD lane owns one row and the K loop runs
/// in one fixed order: a row of activations gives the same bits alone or among 512, on any number of threads, on any
/// SIMD target. Bytes stay within a few percent of the source type. Immutable after pack(); safe to share between
/// threads.
class PackedMatrix {
 public:
  PackedMatrix() = default;

  /// Packs `weight` [rows, cols], any plain float type or quantised type of dtype.h.
  /// @throws Error{unsupported} naming the type where there is no kernel for it
  /// @param packed_rows  called with the source rows that are no longer needed, part by part, so that the caller can
  /// give their
  ///                     pages back: a large matrix is never held twice
  static PackedMatrix pack(const Tensor& weight, ThreadPool& pool,
                           const std::function<void(const Tensor& rows)>& packed_rows = {});

  int64_t rows() const noexcept { return rows_; }
  int64_t cols() const noexcept { return cols_; }
  DType dtype() const noexcept { return dtype_; }  ///< the source type
  int64_t bytes() const noexcept;                  ///< bytes held
  bool empty() const noexcept { return rows_ == 0; }
  bool integer_activations() const noexcept;  ///< true where x is quantised to int8 before the product

  /// Row `row` as float32, exactly the source's dequantised values: embedding lookup. @pre 0 <= row < rows
  void dequantise_row(int64_t row, float* out) const;

  /// Tile `index` (rows 16 index to 16 index + 15) as laid out in packed_layout.h, and its size. For kernels.
  const uint8_t* tile(int64_t index) const noexcept { return storage_.data<uint8_t>() + index * tile_bytes(); }
  int64_t tile_bytes() const noexcept;

 private:
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  DType dtype_ = DType::F32;
  Tensor storage_;  ///< bytes, see packed_layout.h
};

/// Activations quantised once for all the matrices that read them: int8 in blocks of 32 with a float scale each, row by
/// row. Empty until first needed. Owned by whoever owns x; must be cleared when x changes.
struct QuantisedActivations;

/// Rows of float activations [rows, cols], and their quantised form once a kernel asked for it.
class Activations {
 public:
  Activations(const float* values, int64_t rows, int64_t cols);
  ~Activations();
  Activations(Activations&&) noexcept;
  Activations& operator=(Activations&&) noexcept;

  const float* values() const noexcept { return values_; }
  int64_t rows() const noexcept { return rows_; }
  int64_t cols() const noexcept { return cols_; }
  /// Quantises on the first call (each row alone, in parallel over rows).
  const QuantisedActivations& quantised(ThreadPool& pool);
  /// What quantised() left out of each value, quantised in the same way; both together hold about 15 bits.
  const QuantisedActivations& residual(ThreadPool& pool);
  /// The values in tiles of 16 rows, each tile [cols][rows of the tile], for float weights: a kernel then reads one
  /// column of all its rows from consecutive memory. Made on the first call; a single row is its own tile.
  const float* interleaved(ThreadPool& pool);

 private:
  const float* values_;
  int64_t rows_;
  int64_t cols_;
  std::unique_ptr<QuantisedActivations> quantised_;
  std::unique_ptr<QuantisedActivations> residual_;
  Tensor interleaved_;
};

/// One product of several that share their activations (q, k, v and gate; gate and up): run as one parallel region.
struct MatmulOutput {
  const PackedMatrix* weight;   ///< [n, cols]
  float* y;                     ///< [x.rows(), n], row stride n
  const float* bias = nullptr;  ///< [n], added after the product, or null
  /// Quantised weights only: a second pass over each tile, while it is in cache, with what the first int8 rounding of x
  /// left out. Worth it where errors go straight to the result and few rows are computed: the logits.
  bool fine_activations = false;
};

/// y = x * W^T (+ bias) for each output; accumulates in float32 (integer dots inside a block of 32 are exact).
/// @pre every weight has cols() == x.cols()
void matmul(Activations& x, std::span<const MatmulOutput> outputs, ThreadPool& pool);

/// The definition of matmul(): plain loops, the same bits.
void matmul_scalar(Activations& x, std::span<const MatmulOutput> outputs);

}  // namespace slipring
