// Shapes and tensors: dense, row-major, at most four dimensions, owned or viewed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include <slipring/dtype.h>

namespace slipring {

/// Row-major dimensions, outermost first: a weight matrix is [rows, cols] = [out_features, in_features].
class Shape {
 public:
  static constexpr int kMaxRank = 4;
  Shape() = default;
  /// @throws Error{invalid_argument} for more than kMaxRank dimensions, a negative one, or a product beyond 2^62
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);

  int rank() const noexcept { return rank_; }
  int64_t operator[](int axis) const noexcept { return dims_[static_cast<size_t>(axis)]; }
  int64_t elements() const noexcept;
  /// Product of all dimensions but the last; 1 for a vector.
  int64_t rows() const noexcept;
  /// The last dimension; 1 for rank 0.
  int64_t cols() const noexcept;
  bool operator==(const Shape& other) const noexcept;
  /// "[8, 2, 64]"
  std::string to_string() const;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// A dense array of one dtype. Copies share the storage; clone() copies the bytes.
/// Threads: like a shared_ptr to an array. Owned storage is aligned to 64 bytes and starts zeroed.
class Tensor {
 public:
  Tensor() = default;
  /// Owns zeroed storage. @throws Error{out_of_memory}, Error{invalid_argument} if cols is not whole blocks
  Tensor(DType dtype, Shape shape);
  /// Views `data`, which `keep_alive` (may be empty) keeps valid.
  static Tensor view(DType dtype, Shape shape, const void* data, std::shared_ptr<const void> keep_alive = nullptr);
  /// Owned float tensor holding a copy of `values`.
  static Tensor from(std::span<const float> values, Shape shape);

  DType dtype() const noexcept { return dtype_; }
  const Shape& shape() const noexcept { return shape_; }
  int64_t elements() const noexcept { return shape_.elements(); }
  int64_t bytes() const noexcept { return bytes_of(dtype_, elements()); }
  bool empty() const noexcept { return data_ == nullptr; }

  const void* raw() const noexcept { return data_; }
  void* raw() noexcept { return data_; }
  /// The caller names the element type; it must be the storage type of dtype() (float for F32, uint16_t for F16 and
  /// BF16).
  template <class T>
  const T* data() const noexcept {
    return static_cast<const T*>(data_);
  }
  template <class T>
  T* data() noexcept {
    return static_cast<T*>(data_);
  }
  std::span<const std::byte> span() const noexcept {
    return {static_cast<const std::byte*>(data_), static_cast<size_t>(bytes())};
  }

  Tensor clone() const;

 private:
  DType dtype_ = DType::F32;
  Shape shape_;
  void* data_ = nullptr;
  std::shared_ptr<const void> storage_;
};

}  // namespace slipring
