// The parts that most families' layers have: attention's projections and a gated feed-forward block, by the names that
// both formats give them. How a layer puts them together is the family's own.
#pragma once

#include "models/config.h"

namespace slipring {

/// Projections of one layer, with biases where the files have them, and how the layer attends.
struct AttentionPart {
  Linear q, k, v, o;
  AttentionSpec spec;
};

/// down(activation(gate) * up).
struct FeedForwardPart {
  Linear gate, up, down;
};

/// Spec of attention over `layer`'s heads, scaled by head_dim^-0.5, without softcap or sinks.
AttentionSpec attention_spec(int n_heads, const LayerSpec& layer);

/// Projections in matrices of their own. @throws Error{bad_file} naming the tensor
AttentionPart load_attention(WeightLoader& load, const CommonConfig& config, const LayerSpec& layer, int64_t index);
FeedForwardPart load_feed_forward(WeightLoader& load, const CommonConfig& config, int64_t index);

Value feed_forward(Ops& ops, const FeedForwardPart& part, Activation activation, const Value& x);

}  // namespace slipring
