// The weights that ops take. Immutable once loaded; they carry their names so that a traced program can refer to them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <slipring/tensor.h>

#include "kernels/elementwise.h"
#include "kernels/packed_matrix.h"

namespace slipring {

/// y = x * matrix^T + bias.
struct Linear {
  std::string name;     ///< as in the model file
  PackedMatrix matrix;  ///< [out_features, in_features]
  Tensor bias;          ///< [out_features] F32, or empty
  /// Quantised maps only: activations at about 15 bits in place of 8. The output head has it, as its errors are the
  /// logits' own.
  bool fine_activations = false;

  int64_t out_features() const noexcept { return matrix.rows(); }
  int64_t in_features() const noexcept { return matrix.cols(); }
};

/// One expert: the gated feed-forward layer of a mixture. Their names carry the expert's number.
struct Expert {
  Linear gate, up;  ///< [inner, hidden_size]
  Linear down;      ///< [hidden_size, inner]
};

/// A mixture of experts as gpt-oss has it: `router` scores all experts, the best `experts_per_token` take part,
/// weighted by a softmax over their own scores. An expert is down((up' + 1) * gate' * sigmoid(alpha * gate')), where
/// gate' = min(gate, limit) and up' = up between -limit and limit.
struct Mixture {
  Linear router;  ///< [n_experts, hidden_size]
  std::vector<Expert> experts;
  int experts_per_token = 0;
  float alpha = 1.702F;
  float limit = 7.0F;
};

enum class NormKind : uint8_t { rms, layer };

/// A normalisation over `size` elements; a row may hold several such groups (heads), each normalised alone.
struct Norm {
  std::string name;
  NormKind kind = NormKind::rms;
  int64_t size = 0;  ///< elements normalised together: hidden_size, or head_dim for per-head norms
  float eps = 0.0F;
  Tensor
      weight;  ///< [size] F32, ready to multiply (an offset of 1, where a family has one, is already added); or empty
};

/// Rotary position embedding.
struct Rope {
  RopeLayout layout = RopeLayout::halves;
  std::vector<float> inverse_frequencies;  ///< [rotary_dim / 2], radians a position
  float magnitude = 1.0F;                  ///< multiplies cos and sin: YaRN's attention factor; 1 otherwise

  int rotary_dim() const noexcept { return static_cast<int>(inverse_frequencies.size()) * 2; }
  bool operator==(const Rope&) const = default;
};

/// Frequencies theta^(-2i / rotary_dim) / factor, in float32 as the reference implementations compute them.
Rope plain_rope(double theta, int rotary_dim, double factor = 1.0, RopeLayout layout = RopeLayout::halves);

/// How a layer attends.
struct AttentionSpec {
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  float scale = 1.0F;      ///< multiplies q k^T
  float softcap = 0.0F;    ///< 0: none
  int64_t window = 0;      ///< keys a query sees, itself included; 0: all of the past
  Tensor sinks;            ///< [n_heads] F32, or empty
  bool both_ways = false;  ///< a draft block: sees keys up to `window` away on either side, its own step's included
};

}  // namespace slipring
