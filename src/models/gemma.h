// What Gemma 2 and Gemma 3 share.
#pragma once

#include <cmath>

#include "models/config.h"

namespace slipring {

/// One size of either family, told by its number of layers, does not scale by head_dim^-0.5; GGUF files do not say so.
inline double gemma_attention_scale(const ModelFiles& files, const CommonConfig& config, int64_t layers_of_27b) {
  const double head_dim = config.head_dim;
  if (!files.is_gguf()) return 1.0 / std::sqrt(read_positive(files, {"query_pre_attn_scalar", ""}, head_dim));
  if (config.n_layers != layers_of_27b) return 1.0 / std::sqrt(head_dim);
  return 1.0 / std::sqrt(static_cast<double>(config.hidden_size) / config.n_heads);
}

/// Norm weights are stored relative to one; GGUF files hold the sum.
inline float gemma_norm_offset(const ModelFiles& files) {
  return files.is_gguf() ? 0.0F : 1.0F;
}

}  // namespace slipring
