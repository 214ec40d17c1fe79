#include "ops/ops.h"

#include <cmath>

namespace slipring {

Rope plain_rope(double theta, int rotary_dim, double factor, RopeLayout layout) {
  Rope rope;
  rope.layout = layout;
  rope.inverse_frequencies.resize(static_cast<size_t>(rotary_dim / 2));
  for (int i = 0; i < rotary_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    const float inverse = 1.0F / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    rope.inverse_frequencies[static_cast<size_t>(i)] = inverse / static_cast<float>(factor);
  }
  return rope;
}

Value attend(Ops& ops, int layer, const Value& q, const Value& k, const Value& v, const AttentionSpec& spec) {
  if (ops.mode() == StepMode::prefill) {
    const KVHandle kv = ops.fetch_and_concat(layer, k, v);
    Value out = ops.attention(q, kv, spec);
    ops.update(layer, k, v);
    return out;
  }
  const KVHandle kv = ops.update_and_fetch(layer, k, v);
  return ops.attention(q, kv, spec);
}

}  // namespace slipring
