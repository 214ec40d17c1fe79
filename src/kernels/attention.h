// Scaled dot-product attention over a KVView: softmax(scale * q k^T) v for the keys that the position rule admits.
#pragma once

#include <cstdint>
#include <span>

#include <slipring/kv_view.h>

#include "kernels/thread_pool.h"

namespace slipring {

/// One sequence's queries of one layer.
struct AttentionTask {
  const float* q = nullptr;  ///< [query_len, n_heads, head_dim]
  float* out = nullptr;      ///< [query_len, n_heads, head_dim]
  int64_t offset = 0;        ///< position of the first query
  int64_t query_len = 0;
  int n_heads = 0;  ///< a multiple of view->n_kv_heads; query head h reads KV head h / (n_heads / n_kv_heads)
  float scale = 1.0F;
  float softcap = 0.0F;          ///< scores become softcap * tanh(score / softcap); 0: none
  const float* sinks = nullptr;  ///< [n_heads] logits that join the softmax's denominator only; null: none
  PositionRule rule;
  const KVView* view = nullptr;  ///< must hold every position that the rule admits for every query
};

/// Online softmax in blocks of keys aligned to absolute positions; long contexts in fixed position ranges merged in
/// order. So a query's bits depend on its own q and on the keys and values it sees, never on the chunk, the ring's
/// layout or the threads. Accumulates in float32. A query that sees no key gives zeros. Source: Milakov and Gimelshein,
/// Online normalizer calculation for softmax (arXiv 1805.02867); FlashAttention (arXiv 2205.14135).
void attention(std::span<const AttentionTask> tasks, ThreadPool& pool);

}  // namespace slipring
