// Row-wise and element-wise kernels. All are float32, rows are independent, and a row's bits do not depend on its
// neighbours.
#pragma once

#include <cstdint>

#include "kernels/thread_pool.h"

namespace slipring {

/// out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight. Rows of `cols`; in place allowed. weight [cols] or null for none.
/// Source: Zhang and Sennrich, Root Mean Square Layer Normalization (arXiv 1910.07467).
void rms_norm(const float* x, const float* weight, float eps, int64_t rows, int64_t cols, float* out, ThreadPool& pool);

/// The end of one block and the start of the next in one pass: sum = x + delta, out = rms_norm(sum). The same bits as
/// add() then rms_norm(). sum may be x or delta; out may be delta where sum is not.
void add_rms_norm(const float* x, const float* delta, const float* weight, float eps, int64_t rows, int64_t cols,
                  float* sum, float* out, ThreadPool& pool);

/// out[r] = (x[r] - mean) / sqrt(var + eps) * weight: layer norm without bias.
void layer_norm(const float* x, const float* weight, float eps, int64_t rows, int64_t cols, float* out,
                ThreadPool& pool);

enum class RopeLayout : uint8_t {
  halves,      ///< rotates (x[i], x[i + rotary_dim / 2]): GPT-NeoX, Hugging Face
  interleaved  ///< rotates (x[2 i], x[2 i + 1]): the original, and GGUF's permuted llama
};

/// Rotary embedding of x [rows, n_heads, head_dim] in place. cos and sin are [rows, rotary_dim / 2], one row per x row.
/// Source: Su et al., RoFormer (arXiv 2104.09864).
void rope(float* x, const float* cos, const float* sin, int64_t rows, int n_heads, int head_dim, int rotary_dim,
          RopeLayout layout, ThreadPool& pool);

enum class Activation : uint8_t { silu, gelu_tanh, gelu_erf };

/// out[i] = activation(gate[i]) * up[i]. In place allowed.
void gated_activation(Activation activation, const float* gate, const float* up, int64_t count, float* out,
                      ThreadPool& pool);
/// out[i] = x[i] * sigmoid(gate[i]). In place allowed.
void sigmoid_gate(const float* x, const float* gate, int64_t count, float* out, ThreadPool& pool);
/// out[i] = a[i] + b[i]. In place allowed.
void add(const float* a, const float* b, int64_t count, float* out, ThreadPool& pool);
/// out[i] = x[i] * factor. In place allowed.
void scale(const float* x, float factor, int64_t count, float* out, ThreadPool& pool);
/// out[i] = cap * tanh(x[i] / cap). In place allowed.
void softcap(const float* x, float cap, int64_t count, float* out, ThreadPool& pool);

/// Conversions, round to nearest even. F16 and BF16 as their bits.
void f32_to_f16(const float* x, int64_t count, uint16_t* out);
void f32_to_bf16(const float* x, int64_t count, uint16_t* out);
void f16_to_f32(const uint16_t* x, int64_t count, float* out);
void bf16_to_f32(const uint16_t* x, int64_t count, float* out);

}  // namespace slipring
