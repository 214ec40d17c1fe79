// Llama and its kin (SmolLM2, Mistral): the degenerate case, where no layer has a ring, or, with a window, every layer
// has.
//
// Per layer: norm, attention, residual; norm, SwiGLU, residual. Biases where the files have them.
// Reference: Hugging Face transformers, modeling_llama.py and modeling_mistral.py.
#include <cmath>

#include "models/config.h"
#include "models/families.h"

namespace slipring {
namespace {

struct Layer {
  Norm attention_norm, feed_forward_norm;
  Linear q, k, v, o;
  Linear mlp_gate, mlp_up, mlp_down;
  AttentionSpec attention;
};

class Llama final : public Decoder {
 public:
  Llama(const ModelFiles& files, ThreadPool& pool);

  Value embed(Ops& ops) const override;
  Value forward(Ops& ops) const override;
  Value logits(Ops& ops, const Value& hidden) const override;
  const Linear& embedding_table() const override { return embedding_; }
  bool ties_embeddings() const override { return head_.matrix.empty(); }

 private:
  Layer load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const;
  Value layer_forward(Ops& ops, int index, const Value& x) const;

  Linear embedding_, head_;
  Norm final_norm_;
  Rope rope_;
  std::vector<Layer> layers_;
};

ModelSpec read_spec(const ModelFiles& files) {
  ModelSpec spec;
  const CommonConfig config = read_common_config(files);
  // A window in the file (Mistral v0.1) makes every layer slide; null or no window, none.
  const bool slides = files.integer({"sliding_window", "attention.sliding_window"}).value_or(0) > 0;
  const std::vector<LayerKind> kinds(static_cast<size_t>(config.n_layers),
                                     slides ? LayerKind::sliding : LayerKind::full);
  fill_spec(spec, "llama", files, config, kinds, slides ? read_window(files, 0, spec) : 0);
  const double theta = read_theta(files, "rope_parameters", 10000.0);
  for (LayerSpec& layer : spec.layers) layer.rope_theta = theta;
  return spec;
}

Llama::Llama(const ModelFiles& files, ThreadPool& pool) {
  WeightLoader load(files, pool);
  const CommonConfig config = read_common_config(files);
  spec_ = read_spec(files);
  // GGUF files hold q and k permuted for the interleaved rotation.
  const RopeLayout layout = files.is_gguf() ? RopeLayout::interleaved : RopeLayout::halves;
  const int64_t rotary_dim = files.integer({"", "rope.dimension_count"}).value_or(config.head_dim);
  if (rotary_dim < 2 || rotary_dim > config.head_dim || rotary_dim % 2 != 0) {
    files.require_integer({"", "rope.dimension_count"}, config.head_dim, config.head_dim);
  }
  rope_ = read_rope(load, spec_.layers.front().rope_theta, static_cast<int>(rotary_dim), "rope_parameters", layout);

  embedding_ = load.linear(WeightLoader::kEmbedding, config.vocab_size, config.hidden_size);
  for (int64_t i = 0; i < config.n_layers; ++i) layers_.push_back(load_layer(load, config, i));
  final_norm_ = load.norm({"norm.weight", "output_norm.weight"}, config.hidden_size, config.norm_eps);
  head_ = load.optional_linear({"/lm_head.weight", "output.weight"}, config.vocab_size, config.hidden_size);
  (head_.matrix.empty() ? embedding_ : head_).fine_activations = true;
  weight_bytes_ = load.bytes();
  fingerprint_ = load.fingerprint();
}

Layer Llama::load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const int64_t query_width = int64_t{config.n_heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.n_kv_heads} * config.head_dim;
  const auto linear = [&](Names names, Names bias, int64_t out, int64_t in) {
    return load.linear_with_bias(names, bias, out, in, index);
  };
  Layer layer;
  layer.attention_norm =
      load.norm({"layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"}, hidden, config.norm_eps, index);
  layer.feed_forward_norm = load.norm({"layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"}, hidden,
                                      config.norm_eps, index);
  layer.q = linear({"layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
                   {"layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias"}, query_width, hidden);
  layer.k = linear({"layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
                   {"layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias"}, kv_width, hidden);
  layer.v = linear({"layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
                   {"layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"}, kv_width, hidden);
  layer.o = linear({"layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
                   {"layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias"}, hidden, query_width);
  layer.mlp_gate = linear({"layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
                          {"layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias"}, inner, hidden);
  layer.mlp_up = linear({"layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
                        {"layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias"}, inner, hidden);
  layer.mlp_down = linear({"layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
                          {"layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias"}, hidden, inner);
  layer.attention = {.n_heads = config.n_heads,
                     .n_kv_heads = config.n_kv_heads,
                     .head_dim = config.head_dim,
                     .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
                     .softcap = 0.0F,
                     .window = spec_.layers[static_cast<size_t>(index)].window,
                     .sinks = {}};
  return layer;
}

Value Llama::embed(Ops& ops) const {
  return ops.has_embeddings() ? ops.input_embeddings() : ops.embedding(ops.token_ids(), embedding_);
}

Value Llama::layer_forward(Ops& ops, int index, const Value& x) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const int head_dim = layer.attention.head_dim;
  Value h = ops.norm(x, layer.attention_norm);
  auto projections = ops.linear(h, {&layer.q, &layer.k, &layer.v});
  const Value q = ops.rope(std::move(projections[0]), rope_, head_dim);
  const Value k = ops.rope(std::move(projections[1]), rope_, head_dim);
  Value mixed = attend(ops, index, q, k, projections[2], layer.attention);
  const Value middle = ops.add(ops.linear(mixed, layer.o), x);

  h = ops.norm(middle, layer.feed_forward_norm);
  auto mlp = ops.linear(h, {&layer.mlp_gate, &layer.mlp_up});
  return ops.add(ops.linear(ops.gated(Activation::silu, std::move(mlp[0]), mlp[1]), layer.mlp_down), middle);
}

Value Llama::forward(Ops& ops) const {
  Value x = embed(ops);
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
    x = layer_forward(ops, i, x);
    ops.tap(i, x);
  }
  return ops.norm(ops.logit_rows(x), final_norm_);
}

Value Llama::logits(Ops& ops, const Value& hidden) const {
  return ops.linear(hidden, head_.matrix.empty() ? embedding_ : head_);
}

}  // namespace

const Family kLlama = {.read_spec = read_spec,
                       .load = [](const ModelFiles& files, ThreadPool& pool) -> std::shared_ptr<const Decoder> {
                         return std::make_shared<Llama>(files, pool);
                       }};

}  // namespace slipring
