#include "kernels/reference_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/half.h"

namespace slipring {
namespace {

float element(const void* data, DType dtype, int64_t index) {
  if (dtype == DType::F32) return static_cast<const float*>(data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return dtype == DType::F16 ? f32_from_f16(bits) : f32_from_bf16(bits);
}

/// Calls visit(run, index in the run) for each position of the view in [first, end), ascending.
template <class Visit>
void for_each_key(const KVView& view, int64_t first, int64_t end, Visit&& visit) {
  for (const KVRun& run : view.runs) {
    const int64_t from = std::max<int64_t>(0, first - run.first_position);
    const int64_t to = std::min(run.count, end - run.first_position);
    for (int64_t i = from; i < to; ++i) visit(run, i);
  }
}

/// One query of one head.
template <class Real>
void attend(const AttentionTask& task, int64_t query, int head, Real* out) {
  const KVView& view = *task.view;
  const int64_t dim = view.head_dim;
  const int kv_head = head / (task.n_heads / view.n_kv_heads);
  const float* q = task.q + (query * task.n_heads + head) * dim;
  const int64_t position = task.offset + query;
  const int64_t first = task.rule.first(position);
  const int64_t end = task.rule.end(position, view.end_position());
  const auto start = [&](int64_t i) { return (i * view.n_kv_heads + kv_head) * dim; };

  std::fill(out, out + dim, Real{0});
  std::vector<Real> scores;
  Real highest = -std::numeric_limits<Real>::infinity();
  for_each_key(view, first, end, [&](const KVRun& run, int64_t i) {
    Real score = 0;
    for (int64_t d = 0; d < dim; ++d) score += Real(q[d]) * Real(element(run.k, view.dtype, start(i) + d));
    score *= Real(task.scale);
    if (task.softcap != 0.0F) score = Real(task.softcap) * std::tanh(score / Real(task.softcap));
    scores.push_back(score);
    highest = std::max(highest, score);
  });
  if (scores.empty()) return;

  Real denominator = 0;
  if (task.sinks != nullptr) {
    highest = std::max(highest, Real(task.sinks[head]));
    denominator = std::exp(Real(task.sinks[head]) - highest);
  }
  for (Real& score : scores) {
    score = std::exp(score - highest);
    denominator += score;
  }
  size_t next = 0;
  for_each_key(view, first, end, [&](const KVRun& run, int64_t i) {
    const Real weight = scores[next++] / denominator;
    for (int64_t d = 0; d < dim; ++d) out[d] += weight * Real(element(run.v, view.dtype, start(i) + d));
  });
}

template <class Real>
void attend_all(const AttentionTask& task, Real* out) {
  for (int64_t query = 0; query < task.query_len; ++query) {
    for (int head = 0; head < task.n_heads; ++head, out += task.view->head_dim) attend(task, query, head, out);
  }
}

}  // namespace

void reference_attention(const AttentionTask& task) {
  attend_all(task, task.out);
}

std::vector<double> reference_attention_f64(const AttentionTask& task) {
  std::vector<double> out(static_cast<size_t>(task.query_len * task.n_heads * task.view->head_dim));
  attend_all(task, out.data());
  return out;
}

}  // namespace slipring
