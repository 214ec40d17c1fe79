// Attention as its formula reads: the slow definition of kernels/attention.h, for tests only.
#pragma once

#include <vector>

#include "kernels/attention.h"

namespace slipring {

/// The same task as attention(): scores of all admitted keys in ascending position order, one softmax over them, one
/// weighted sum. Accumulates in float32. Writes task.out [query_len, n_heads, head_dim].
void reference_attention(const AttentionTask& task);

/// The same in float64; task.out is not touched. @return [query_len, n_heads, head_dim]
std::vector<double> reference_attention_f64(const AttentionTask& task);

}  // namespace slipring
