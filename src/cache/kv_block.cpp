#include <fmt/format.h>
#include <memory>

#include <slipring/error.h>
#include <slipring/kv_block.h>

#include "kernels/elementwise.h"

namespace slipring {
namespace {

bool is_cache_dtype(DType dtype) noexcept {
  return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
}

void check_pair(const Tensor& k, const Tensor& v) {
  if (k.shape().rank() == 3 && k.shape() == v.shape() && k.elements() > 0) return;
  throw Error(ErrorCode::shape_mismatch,
              {.where = "KVBlock",
               .expected = "K and V both [query_len, n_kv_heads, head_dim], none of them 0",
               .got = fmt::format("K {} and V {}", k.shape().to_string(), v.shape().to_string()),
               .advice = {}});
}

[[noreturn]] void fail_dtype(const char* expected, std::string got) {
  throw Error(ErrorCode::dtype_mismatch,
              {.where = "KVBlock", .expected = expected, .got = std::move(got), .advice = {}});
}

Tensor rounded(const Tensor& x, DType dtype) {
  if (dtype == DType::F32) return x;
  Tensor result(dtype, x.shape());
  const auto convert = dtype == DType::F16 ? f32_to_f16 : f32_to_bf16;
  convert(x.data<float>(), x.elements(), result.data<uint16_t>());
  return result;
}

/// Rows first ... first + count - 1 of a tensor; shares its storage.
Tensor rows_of(const Tensor& x, int64_t first, int64_t count) {
  const Shape& shape = x.shape();
  const int64_t row_bytes = x.bytes() / shape[0];
  return Tensor::view(x.dtype(), {count, shape[1], shape[2]},
                      static_cast<const std::byte*>(x.raw()) + first * row_bytes, std::make_shared<const Tensor>(x));
}

}  // namespace

KVBlock KVBlock::round(const Tensor& k, const Tensor& v, DType dtype) {
  check_pair(k, v);
  if (k.dtype() != DType::F32 || v.dtype() != DType::F32) {
    fail_dtype("float32 K and V to round", fmt::format("K {} and V {}", to_string(k.dtype()), to_string(v.dtype())));
  }
  if (!is_cache_dtype(dtype)) fail_dtype("a cache of F32, F16 or BF16", std::string(to_string(dtype)));
  return {rounded(k, dtype), rounded(v, dtype)};
}

KVBlock KVBlock::of(const Tensor& k, const Tensor& v) {
  check_pair(k, v);
  if (!is_cache_dtype(k.dtype()) || k.dtype() != v.dtype()) {
    fail_dtype("K and V both F32, F16 or BF16",
               fmt::format("K {} and V {}", to_string(k.dtype()), to_string(v.dtype())));
  }
  return {k, v};
}

KVBlock KVBlock::slice(int64_t first, int64_t count) const {
  if (first < 0 || count < 1 || first > query_len() - count) {
    throw Error(ErrorCode::invalid_argument, {.where = "KVBlock::slice",
                                              .expected = fmt::format("a part of {} positions", query_len()),
                                              .got = fmt::format("{} positions from {}", count, first),
                                              .advice = {}});
  }
  if (count == query_len()) return *this;
  return {rows_of(k_, first, count), rows_of(v_, first, count)};
}

}  // namespace slipring
