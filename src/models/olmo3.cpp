// OLMo 3: three sliding layers, then one full one, and so on; and OLMo 2, the same without windows.
//
// Per layer: attention with QK norm over all heads together, norm, residual; SwiGLU, norm, residual (norms behind, not
// in front). Full layers may be stretched by YaRN, sliding ones never are. Reference: Hugging Face transformers,
// modeling_olmo3.py and modeling_olmo2.py.
#include <cmath>

#include "models/config.h"
#include "models/families.h"

namespace slipring {
namespace {

struct Layer {
  Norm q_norm, k_norm, post_attention_norm, post_feed_forward_norm;
  Linear q, k, v, o;
  Linear mlp_gate, mlp_up, mlp_down;
  AttentionSpec attention;
  Rope rope;
};

class Olmo3 final : public Decoder {
 public:
  Olmo3(const ModelFiles& files, ThreadPool& pool);

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
  std::vector<Layer> layers_;
};

constexpr int64_t kPeriod = 4;
constexpr double kTheta = 500000.0;

ModelSpec read_spec(const ModelFiles& files) {
  ModelSpec spec;
  const CommonConfig config = read_common_config(files);
  const bool slides = files.integer({"sliding_window", "attention.sliding_window"}).value_or(0) != 0 ||
                      files.texts({"layer_types", ""}).has_value();
  std::vector<LayerKind> kinds(static_cast<size_t>(config.n_layers), LayerKind::full);
  int64_t window = 0;
  if (slides) {
    kinds = read_layer_kinds(files, config.n_layers, {.period = kPeriod, .full_residue = kPeriod - 1}, spec);
    window = read_window(files, 0, spec);
  }
  fill_spec(spec, "olmo3", files, config, kinds, window);
  for (LayerSpec& layer : spec.layers) {
    const bool sliding = layer.kind == LayerKind::sliding;
    const char* section = sliding ? "rope_parameters/sliding_attention" : "rope_parameters/full_attention";
    layer.rope_theta = read_theta(files, section, kTheta);
  }
  return spec;
}

Olmo3::Olmo3(const ModelFiles& files, ThreadPool& pool) {
  WeightLoader load(files, pool);
  const CommonConfig config = read_common_config(files);
  spec_ = read_spec(files);
  embedding_ = load.linear(WeightLoader::kEmbedding, config.vocab_size, config.hidden_size);
  for (int64_t i = 0; i < config.n_layers; ++i) layers_.push_back(load_layer(load, config, i));
  final_norm_ = load.norm({"norm.weight", "output_norm.weight"}, config.hidden_size, config.norm_eps);
  head_ = load.optional_linear({"/lm_head.weight", "output.weight"}, config.vocab_size, config.hidden_size);
  (head_.matrix.empty() ? embedding_ : head_).fine_activations = true;
  weight_bytes_ = load.bytes();
  fingerprint_ = load.fingerprint();
}

Layer Olmo3::load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const int64_t query_width = int64_t{config.n_heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.n_kv_heads} * config.head_dim;
  const auto linear = [&](Names names, Names bias, int64_t out, int64_t in) {
    return load.linear_with_bias(names, bias, out, in, index);
  };
  const auto norm = [&](Names names, int64_t size) { return load.norm(names, size, config.norm_eps, index); };
  Layer layer;
  layer.q_norm = norm({"layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"}, query_width);
  layer.k_norm = norm({"layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"}, kv_width);
  layer.post_attention_norm =
      norm({"layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"}, hidden);
  layer.post_feed_forward_norm =
      norm({"layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight"}, hidden);
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

  const LayerSpec& spec = spec_.layers[static_cast<size_t>(index)];
  layer.rope = spec.kind == LayerKind::sliding ? plain_rope(spec.rope_theta, config.head_dim)
                                               : read_rope(load, spec.rope_theta, config.head_dim,
                                                           "rope_parameters/full_attention", RopeLayout::halves);
  layer.attention = {.n_heads = config.n_heads,
                     .n_kv_heads = config.n_kv_heads,
                     .head_dim = config.head_dim,
                     .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
                     .softcap = 0.0F,
                     .window = spec.window,
                     .sinks = {}};
  return layer;
}

Value Olmo3::embed(Ops& ops) const {
  return ops.has_embeddings() ? ops.input_embeddings() : ops.embedding(ops.token_ids(), embedding_);
}

Value Olmo3::layer_forward(Ops& ops, int index, const Value& x) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const int head_dim = layer.attention.head_dim;
  auto projections = ops.linear(x, {&layer.q, &layer.k, &layer.v});
  const Value q = ops.rope(ops.norm(std::move(projections[0]), layer.q_norm), layer.rope, head_dim);
  const Value k = ops.rope(ops.norm(std::move(projections[1]), layer.k_norm), layer.rope, head_dim);
  Value mixed = ops.linear(attend(ops, index, q, k, projections[2], layer.attention), layer.o);
  const Value middle = ops.add(ops.norm(std::move(mixed), layer.post_attention_norm), x);

  auto mlp = ops.linear(middle, {&layer.mlp_gate, &layer.mlp_up});
  Value h = ops.linear(ops.gated(Activation::silu, std::move(mlp[0]), mlp[1]), layer.mlp_down);
  return ops.add(ops.norm(std::move(h), layer.post_feed_forward_norm), middle);
}

Value Olmo3::forward(Ops& ops) const {
  Value x = embed(ops);
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
    x = layer_forward(ops, i, x);
    ops.tap(i, x);
  }
  return ops.norm(ops.logit_rows(x), final_norm_);
}

Value Olmo3::logits(Ops& ops, const Value& hidden) const {
  return ops.linear(hidden, head_.matrix.empty() ? embedding_ : head_);
}

}  // namespace

const Family kOlmo3 = {.read_spec = read_spec,
                       .load = [](const ModelFiles& files, ThreadPool& pool) -> std::shared_ptr<const Decoder> {
                         return std::make_shared<Olmo3>(files, pool);
                       }};

}  // namespace slipring
