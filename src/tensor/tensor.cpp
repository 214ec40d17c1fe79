#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <new>

#include <slipring/error.h>
#include <slipring/tensor.h>

#include "tensor/shared_pages.h"

namespace slipring {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 62;
constexpr std::align_val_t kAlignment{64};

std::shared_ptr<const void> allocate_zeroed(size_t size, const Shape& shape, DType dtype) {
  std::shared_ptr<const void> storage = SharedPages::allocate(size);
  if (storage) return storage;
  if (void* memory = ::operator new(std::max<size_t>(size, 1), kAlignment, std::nothrow)) {
    std::memset(memory, 0, size);
    storage = std::shared_ptr<void>(memory, [](void* p) { ::operator delete(p, kAlignment); });
  }
  if (storage) return storage;
  throw Error(ErrorCode::out_of_memory,
              {.where = "tensor " + shape.to_string() + " of " + std::string(to_string(dtype)),
               .expected = {},
               .got = fmt::format("no memory for {} bytes", size),
               .advice = "use a smaller context, model or batch"});
}

}  // namespace

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) {
  if (dims.size() > kMaxRank) {
    throw Error(ErrorCode::invalid_argument, {.where = "tensor shape",
                                              .expected = fmt::format("at most {}", kMaxRank),
                                              .got = fmt::format("{} dimensions", dims.size()),
                                              .advice = {}});
  }
  int64_t product = 1;
  for (const int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(product, dim, &product) || product > kMaxElements) {
      throw Error(ErrorCode::invalid_argument, {.where = "tensor shape",
                                                .expected = "dimensions >= 0 with a product below 2^62",
                                                .got = fmt::format("[{}]", fmt::join(dims, ", ")),
                                                .advice = {}});
    }
    dims_[static_cast<size_t>(rank_++)] = dim;
  }
}

int64_t Shape::elements() const noexcept {
  int64_t product = 1;
  for (int axis = 0; axis < rank_; ++axis) product *= dims_[static_cast<size_t>(axis)];
  return product;
}

int64_t Shape::rows() const noexcept {
  int64_t product = 1;
  for (int axis = 0; axis + 1 < rank_; ++axis) product *= dims_[static_cast<size_t>(axis)];
  return product;
}

int64_t Shape::cols() const noexcept {
  return rank_ == 0 ? 1 : dims_[static_cast<size_t>(rank_ - 1)];
}

bool Shape::operator==(const Shape& other) const noexcept {
  return rank_ == other.rank_ && dims_ == other.dims_;
}

std::string Shape::to_string() const {
  return fmt::format("[{}]", fmt::join(dims_.begin(), dims_.begin() + rank_, ", "));
}

Tensor::Tensor(DType dtype, Shape shape) : dtype_(dtype), shape_(shape) {
  if (shape.cols() % info(dtype).block_elements != 0) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "tensor of " + std::string(to_string(dtype)),
                 .expected = fmt::format("rows of a multiple of {} elements", info(dtype).block_elements),
                 .got = "shape " + shape.to_string(),
                 .advice = {}});
  }
  storage_ = allocate_zeroed(static_cast<size_t>(bytes()), shape, dtype);
  data_ = const_cast<void*>(storage_.get());  // NOLINT: this tensor owns it
}

Tensor Tensor::view(DType dtype, Shape shape, const void* data, std::shared_ptr<const void> keep_alive) {
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  tensor.data_ = const_cast<void*>(data);  // NOLINT: writing through a view is the owner's business
  tensor.storage_ = std::move(keep_alive);
  return tensor;
}

Tensor Tensor::from(std::span<const float> values, Shape shape) {
  if (static_cast<int64_t>(values.size()) != shape.elements()) {
    throw Error(ErrorCode::shape_mismatch,
                {.where = "Tensor::from",
                 .expected = fmt::format("{} values for {}", shape.elements(), shape.to_string()),
                 .got = fmt::format("{} values", values.size()),
                 .advice = {}});
  }
  Tensor tensor(DType::F32, shape);
  if (!values.empty()) std::memcpy(tensor.data_, values.data(), values.size_bytes());
  return tensor;
}

Tensor Tensor::clone() const {
  if (empty()) return {};
  Tensor copy(dtype_, shape_);
  if (bytes() > 0) std::memcpy(copy.data_, data_, static_cast<size_t>(bytes()));
  return copy;
}

}  // namespace slipring
