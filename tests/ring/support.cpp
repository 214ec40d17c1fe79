#include "support.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <slipring/masks.h>

#include "kernels/reference_attention.h"
#include "tensor/half.h"

namespace slipring::test {
namespace {

Tensor random_tensor(const Shape& shape, std::mt19937& random, float growth) {
  std::normal_distribution<float> normal;
  Tensor tensor(DType::F32, shape);
  const int64_t row = shape.elements() / shape[0];
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    tensor.data<float>()[i] = normal(random) + growth * static_cast<float>(i / row);
  }
  return tensor;
}

float at(const Tensor& x, int64_t index) {
  if (x.dtype() == DType::F32) return x.data<float>()[index];
  const uint16_t bits = x.data<uint16_t>()[index];
  return x.dtype() == DType::F16 ? f32_from_f16(bits) : f32_from_bf16(bits);
}

/// Softmax over `scores`, then the weighted sum of value(i)[d] into out[0 ... kDim - 1].
template <class Value>
void softmax_sum(std::vector<double> scores, Value&& value, double* out) {
  const double highest = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (double& score : scores) total += score = std::exp(score - highest);
  for (int d = 0; d < kDim; ++d) {
    double sum = 0;
    for (size_t i = 0; i < scores.size(); ++i) sum += scores[i] / total * value(i, d);
    out[d] = sum;
  }
}

constexpr double kScale = 0.5;  // 1 / sqrt(kDim)

}  // namespace

double max_difference(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (!(difference <= most)) most = difference;  // a NaN counts as a difference
  }
  return most;
}

std::vector<double> widened(std::span<const float> x) {
  return {x.begin(), x.end()};
}

Stream::Stream(int64_t n, uint32_t seed, DType dtype, float growth) : Stream(n, std::mt19937(seed), dtype, growth) {}

Stream::Stream(int64_t n, std::mt19937 random, DType dtype, float growth)
    : length(n),
      q(random_tensor({n, kHeads, kDim}, random, 0)),
      whole(KVBlock::round(random_tensor({n, kKVHeads, kDim}, random, 0),
                           random_tensor({n, kKVHeads, kDim}, random, growth), dtype)) {}

std::vector<double> oracle(const Stream& stream, int64_t first, int64_t count, int64_t window) {
  std::vector<double> out(static_cast<size_t>(count * kHeads * kDim));
  double* next = out.data();
  for (int64_t query = first; query < first + count; ++query) {
    const int64_t oldest = std::max<int64_t>(0, query - window + 1);
    for (int head = 0; head < kHeads; ++head, next += kDim) {
      const int kv_head = head * kKVHeads / kHeads;
      const auto index = [&](int64_t key, int d) { return (key * kKVHeads + kv_head) * kDim + d; };
      std::vector<double> scores;
      for (int64_t key = oldest; key <= query; ++key) {
        double dot = 0;
        for (int d = 0; d < kDim; ++d) {
          dot +=
              double{stream.q.data<float>()[(query * kHeads + head) * kDim + d]} * at(stream.whole.k(), index(key, d));
        }
        scores.push_back(dot * kScale);
      }
      softmax_sum(
          scores,
          [&](size_t i, int d) { return double{at(stream.whole.v(), index(oldest + static_cast<int64_t>(i), d))}; },
          next);
    }
  }
  return out;
}

std::vector<float> attend(const KVView& view, const Stream& stream, int64_t first, int64_t count, int64_t window) {
  std::vector<float> out(static_cast<size_t>(count * kHeads * kDim));
  AttentionTask task;
  task.q = stream.queries(first);
  task.out = out.data();
  task.offset = first;
  task.query_len = count;
  task.n_heads = kHeads;
  task.scale = static_cast<float>(kScale);
  task.rule = PositionRule::window(window);
  task.view = &view;
  reference_attention(task);
  return out;
}

std::vector<float> concat_step(LayerCache& cache, const Stream& stream, int64_t count, int64_t window) {
  const int64_t offset = cache.offset();
  const KVBlock block = stream.block(offset, count);
  const auto out = attend(cache.fetch_and_concat(block), stream, offset, count, window);
  cache.commit(block, count);
  return out;
}

std::vector<float> decode_step(LayerCache& cache, const Stream& stream, int64_t window) {
  const int64_t offset = cache.offset();
  return attend(cache.update_and_fetch(stream.block(offset, 1)), stream, offset, 1, window);
}

std::vector<double> masked_attention(const Stream& stream, int64_t first, int64_t count, const Tensor& mask,
                                     const std::vector<const float*>& k_rows, const std::vector<const float*>& v_rows) {
  std::vector<double> out(static_cast<size_t>(count * kHeads * kDim));
  double* next = out.data();
  for (int64_t i = 0; i < count; ++i) {
    std::vector<size_t> seen;
    for (size_t row = 0; row < k_rows.size(); ++row) {
      if (mask.data<uint8_t>()[static_cast<size_t>(i) * k_rows.size() + row] != 0) seen.push_back(row);
    }
    for (int head = 0; head < kHeads; ++head, next += kDim) {
      const int kv_head = head * kKVHeads / kHeads;
      std::vector<double> scores;
      for (const size_t row : seen) {
        double dot = 0;
        for (int d = 0; d < kDim; ++d) {
          dot += double{stream.queries(first + i)[head * kDim + d]} * k_rows[row][kv_head * kDim + d];
        }
        scores.push_back(dot * kScale);
      }
      if (seen.empty()) continue;
      softmax_sum(
          scores, [&](size_t s, int d) { return double{v_rows[seen[s]][kv_head * kDim + d]}; }, next);
    }
  }
  return out;
}

WriteFirstRing::WriteFirstRing(int64_t capacity, int64_t window)
    : capacity_(capacity),
      window_(window),
      k_(static_cast<size_t>(capacity), nullptr),
      v_(static_cast<size_t>(capacity), nullptr) {}

std::vector<double> WriteFirstRing::step(const Stream& stream, int64_t count) {
  for (int64_t p = offset_; p < offset_ + count; ++p) {
    k_[static_cast<size_t>(p % capacity_)] = stream.whole.k().data<float>() + p * kKVHeads * kDim;
    v_[static_cast<size_t>(p % capacity_)] = stream.whole.v().data<float>() + p * kKVHeads * kDim;
  }
  const auto out =
      masked_attention(stream, offset_, count, ring_window_causal_mask(offset_, count, capacity_, window_), k_, v_);
  offset_ += count;
  return out;
}

bool write_first_loses_keys(int64_t offset, int64_t query_len, int64_t capacity, int64_t window) {
  const int64_t oldest_needed = std::max<int64_t>(0, offset - window + 1);
  const int64_t newest_evicted = offset + query_len - 1 - capacity;
  return newest_evicted >= oldest_needed;
}

}  // namespace slipring::test
