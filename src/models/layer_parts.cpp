#include "models/layer_parts.h"

#include <cmath>

#include "models/config.h"

namespace slipring {
namespace {

/// What config.json promises and the weights lack would be left out in silence.
void check_promised_bias(const ModelFiles& files, std::string_view key, const Linear& first) {
  if (files.is_gguf() || !first.bias.empty() || !files.boolean({key, {}}).value_or(false)) return;
  bad_key(files, key, "false, as there are no biases", "true");
}

}  // namespace

AttentionSpec attention_spec(int n_heads, const LayerSpec& layer) {
  return {.n_heads = n_heads,
          .n_kv_heads = layer.n_kv_heads,
          .head_dim = layer.head_dim,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(layer.head_dim))),
          .softcap = 0.0F,
          .window = layer.window,
          .sinks = {}};
}

AttentionPart load_attention(WeightLoader& load, const CommonConfig& config, const LayerSpec& layer, int64_t index) {
  const auto linear = [&](Names names, Names bias, int64_t out, int64_t in) {
    return load.linear_with_bias(names, bias, out, in, index);
  };
  const int64_t hidden = config.hidden_size;
  AttentionPart part;
  part.q = linear({"layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
                  {"layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias"}, config.query_width(), hidden);
  part.k = linear({"layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
                  {"layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias"}, config.kv_width(), hidden);
  part.v = linear({"layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
                  {"layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"}, config.kv_width(), hidden);
  part.o = linear({"layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
                  {"layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias"}, hidden, config.query_width());
  check_promised_bias(load.files(), "attention_bias", part.q);
  part.spec = attention_spec(config.n_heads, layer);
  return part;
}

FeedForwardPart load_feed_forward(WeightLoader& load, const CommonConfig& config, int64_t index) {
  const auto linear = [&](Names names, Names bias, int64_t out, int64_t in) {
    return load.linear_with_bias(names, bias, out, in, index);
  };
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  FeedForwardPart part;
  part.gate = linear({"layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
                     {"layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias"}, inner, hidden);
  part.up = linear({"layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
                   {"layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias"}, inner, hidden);
  part.down = linear({"layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
                     {"layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias"}, hidden, inner);
  check_promised_bias(load.files(), "mlp_bias", part.gate);
  return part;
}

Value feed_forward(Ops& ops, const FeedForwardPart& part, Activation activation, const Value& x) {
  auto inner = ops.linear(x, {&part.gate, &part.up});
  return ops.linear(ops.gated(activation, std::move(inner[0]), inner[1]), part.down);
}

}  // namespace slipring
