// NativeOps: the mixture of experts.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/native_ops.h"

namespace slipring {
namespace {

struct Choice {
  size_t expert = 0;
  float weight = 0.0F;
};

/// The best experts of one row, best first and the lower number first among equals, with their softmax.
void choose(std::span<const float> scores, std::span<Choice> choices) {
  std::vector<bool> taken(scores.size(), false);
  for (Choice& choice : choices) {
    size_t best = scores.size();
    for (size_t i = 0; i < scores.size(); ++i) {
      if (!taken[i] && (best == scores.size() || scores[i] > scores[best])) best = i;
    }
    taken[best] = true;
    choice.expert = best;
  }
  float sum = 0.0F;
  for (Choice& choice : choices) {
    choice.weight = std::exp(scores[choice.expert] - scores[choices.front().expert]);
    sum += choice.weight;
  }
  for (Choice& choice : choices) choice.weight /= sum;
}

/// Turns gate and up into what silu(gate) * up makes the clamped form of: silu(alpha g) is alpha g sigmoid(alpha g).
void clamp(const Mixture& mixture, int64_t count, float* gate, float* up) {
  const float alpha = mixture.alpha;
  const float limit = mixture.limit;
  for (int64_t i = 0; i < count; ++i) {
    gate[i] = alpha * std::min(gate[i], limit);
    up[i] = (std::min(std::max(up[i], -limit), limit) + 1.0F) / alpha;
  }
}

}  // namespace

Value NativeOps::moe(const Value& x, const Mixture& mixture) {
  const int64_t n_rows = rows(x);
  const int64_t width = cols(x);
  const auto per_row = static_cast<size_t>(mixture.experts_per_token);
  const size_t n_experts = mixture.experts.size();

  // Every row's choices, and for each expert the places (row and rank) that want it.
  std::vector<Choice> choices(static_cast<size_t>(n_rows) * per_row);
  std::vector<std::vector<size_t>> places(n_experts);
  {
    const Value scores = linear(x, mixture.router);
    const std::span<const float> all = data(scores);
    for (size_t row = 0; row < static_cast<size_t>(n_rows); ++row) {
      choose(all.subspan(row * n_experts, n_experts), std::span(choices).subspan(row * per_row, per_row));
    }
  }
  for (size_t place = 0; place < choices.size(); ++place) places[choices[place].expert].push_back(place);

  const auto row_floats = static_cast<size_t>(width);
  const size_t row_bytes = row_floats * sizeof(float);
  const Value results = make(n_rows * mixture.experts_per_token, width);  // by place
  for (size_t e = 0; e < n_experts; ++e) {
    if (places[e].empty()) continue;
    const Expert& expert = mixture.experts[e];
    const Value gathered = make(static_cast<int64_t>(places[e].size()), width);
    const float* from = data(x).data();
    for (size_t i = 0; i < places[e].size(); ++i) {
      std::memcpy(out(gathered) + i * row_floats, from + places[e][i] / per_row * row_floats, row_bytes);
    }
    auto inner = linear(gathered, {&expert.gate, &expert.up});
    clamp(mixture, rows(inner[0]) * cols(inner[0]), out(inner[0]), out(inner[1]));
    const Value y = linear(gated(Activation::silu, std::move(inner[0]), inner[1]), expert.down);
    const float* made = data(y).data();
    for (size_t i = 0; i < places[e].size(); ++i) {
      std::memcpy(out(results) + places[e][i] * row_floats, made + i * row_floats, row_bytes);
    }
  }

  // Added in the order of rank, whatever the order in which the experts ran.
  Value sum = make(n_rows, width);
  float* to = out(sum);
  const float* parts = data(results).data();
  pool_.parallel_for(n_rows, [&](int64_t row, int /*worker*/) {
    float* total = to + static_cast<size_t>(row) * row_floats;
    std::fill_n(total, row_floats, 0.0F);
    for (size_t rank = 0; rank < per_row; ++rank) {
      const size_t place = static_cast<size_t>(row) * per_row + rank;
      const float weight = choices[place].weight;
      for (size_t i = 0; i < row_floats; ++i) total[i] += weight * parts[place * row_floats + i];
    }
  });
  return sum;
}

}  // namespace slipring
