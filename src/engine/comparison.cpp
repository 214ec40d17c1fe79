#include "engine/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/state_bytes.h"
#include "tensor/half.h"

namespace slipring {
namespace {

float element(DType dtype, const void* data, int64_t index) noexcept {
  if (dtype == DType::F32) return static_cast<const float*>(data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return dtype == DType::F16 ? f32_from_f16(bits) : f32_from_bf16(bits);
}

}  // namespace

void Comparison::rows(std::span<const float> a, std::span<const float> b) {
  ++check_.cases;
  if (std::memcmp(a.data(), b.data(), a.size_bytes()) == 0) return;
  check_.same = false;
  for (size_t i = 0; i < a.size(); ++i) differ(a[i], b[i]);
}

void Comparison::tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) check_.same = false;
}

void Comparison::caches(const Sequence& a, const Sequence& b, const std::vector<LayerSpec>& layers) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerCache& x = *a.caches[i];
    const LayerCache& y = *b.caches[i];
    const int64_t window = layers[i].window;
    const int64_t first = window > 0 ? std::max<int64_t>(0, x.offset() - window) : 0;
    if (x.offset() != y.offset() || x.first_held() > first || y.first_held() > first) {
      check_.same = false;
      check_.largest = std::numeric_limits<double>::infinity();
      continue;
    }
    if (x.offset() == 0) continue;
    const KVBlock p = copy_positions(x, first);
    const KVBlock q = copy_positions(y, first);
    tensors(p.k(), q.k());
    tensors(p.v(), q.v());
  }
}

VerifyCheck Comparison::check(std::string name, std::string remark) && {
  check_.name = std::move(name);
  check_.remark = std::move(remark);
  return std::move(check_);
}

void Comparison::tensors(const Tensor& a, const Tensor& b) {
  if (a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0) return;
  check_.same = false;
  if (a.elements() != b.elements()) {
    check_.largest = std::numeric_limits<double>::infinity();
    return;
  }
  for (int64_t i = 0; i < a.elements(); ++i) differ(element(a.dtype(), a.raw(), i), element(b.dtype(), b.raw(), i));
}

void Comparison::differ(double a, double b) {
  const double difference = std::abs(a - b);
  check_.largest =
      std::max(check_.largest, std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference);
}

}  // namespace slipring
