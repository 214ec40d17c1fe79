// Cohere 2 (Command R7B, Command A): three sliding layers with RoPE, then one full layer without position embedding.
//
// Per layer: one layer norm; attention and SwiGLU side by side on it; residual. Embeddings are shared with the output;
// logits are scaled. Reference: Hugging Face transformers, modeling_cohere2.py.
#include <cmath>

#include "models/config.h"
#include "models/families.h"

namespace slipring {
namespace {

struct Layer {
  Norm norm;
  Linear q, k, v, o;
  Linear mlp_gate, mlp_up, mlp_down;
  AttentionSpec attention;
};

class Cohere2 final : public Decoder {
 public:
  Cohere2(const ModelFiles& files, ThreadPool& pool);

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
  float logit_scale_ = 1.0F;
};

constexpr int64_t kPeriod = 4;
constexpr int64_t kWindow = 4096;

ModelSpec read_spec(const ModelFiles& files) {
  ModelSpec spec;
  const CommonConfig config = read_common_config(files);
  const auto kinds = read_layer_kinds(files, config.n_layers, {.period = kPeriod, .full_residue = kPeriod - 1}, spec);
  fill_spec(spec, "cohere2", files, config, kinds, read_window(files, kWindow, spec));
  const double theta = read_theta(files, "rope_parameters", 10000.0);
  for (LayerSpec& layer : spec.layers) layer.rope_theta = layer.kind == LayerKind::sliding ? theta : 0.0;
  return spec;
}

Norm layer_norm(WeightLoader& load, Names names, const CommonConfig& config, int64_t layer = -1) {
  const double eps = load.files().real({"layer_norm_eps", "attention.layer_norm_epsilon"}).value_or(1e-5);
  Norm norm = load.norm(names, config.hidden_size, eps, layer);
  norm.kind = NormKind::layer;
  return norm;
}

Cohere2::Cohere2(const ModelFiles& files, ThreadPool& pool) {
  WeightLoader load(files, pool);
  const CommonConfig config = read_common_config(files);
  spec_ = read_spec(files);
  logit_scale_ = static_cast<float>(files.real({"logit_scale", "logit_scale"}).value_or(0.0625));
  // Both formats hold q and k for the interleaved rotation.
  rope_ = read_rope(load, read_theta(files, "rope_parameters", 10000.0), config.head_dim, "rope_parameters",
                    RopeLayout::interleaved);

  embedding_ = load.linear(WeightLoader::kEmbedding, config.vocab_size, config.hidden_size);
  for (int64_t i = 0; i < config.n_layers; ++i) layers_.push_back(load_layer(load, config, i));
  final_norm_ = layer_norm(load, {"norm.weight", "output_norm.weight"}, config);
  head_ = load.optional_linear({"/lm_head.weight", "output.weight"}, config.vocab_size, config.hidden_size);
  (head_.matrix.empty() ? embedding_ : head_).fine_activations = true;
  weight_bytes_ = load.bytes();
  fingerprint_ = load.fingerprint();
}

Layer Cohere2::load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const int64_t query_width = int64_t{config.n_heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.n_kv_heads} * config.head_dim;
  const auto linear = [&](Names names, Names bias, int64_t out, int64_t in) {
    return load.linear_with_bias(names, bias, out, in, index);
  };
  Layer layer;
  layer.norm = layer_norm(load, {"layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"}, config, index);
  layer.q = linear({"layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
                   {"layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias"}, query_width, hidden);
  layer.k = linear({"layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
                   {"layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias"}, kv_width, hidden);
  layer.v = linear({"layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
                   {"layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"}, kv_width, hidden);
  layer.o = linear({"layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
                   {"layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias"}, hidden, query_width);
  layer.mlp_gate = load.linear({"layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"}, inner, hidden, index);
  layer.mlp_up = load.linear({"layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"}, inner, hidden, index);
  layer.mlp_down = load.linear({"layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"}, hidden, inner, index);
  layer.attention = {.n_heads = config.n_heads,
                     .n_kv_heads = config.n_kv_heads,
                     .head_dim = config.head_dim,
                     .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
                     .softcap = 0.0F,
                     .window = spec_.layers[static_cast<size_t>(index)].window,
                     .sinks = {}};
  return layer;
}

Value Cohere2::embed(Ops& ops) const {
  return ops.has_embeddings() ? ops.input_embeddings() : ops.embedding(ops.token_ids(), embedding_);
}

Value Cohere2::layer_forward(Ops& ops, int index, const Value& x) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const int head_dim = layer.attention.head_dim;
  const Value h = ops.norm(x, layer.norm);
  auto projections = ops.linear(h, {&layer.q, &layer.k, &layer.v, &layer.mlp_gate, &layer.mlp_up});
  Value q = std::move(projections[0]);
  Value k = std::move(projections[1]);
  if (spec_.layers[static_cast<size_t>(index)].rope_theta > 0) {
    q = ops.rope(std::move(q), rope_, head_dim);
    k = ops.rope(std::move(k), rope_, head_dim);
  }
  Value mixed = ops.linear(attend(ops, index, q, k, projections[2], layer.attention), layer.o);
  const Value fed = ops.linear(ops.gated(Activation::silu, std::move(projections[3]), projections[4]), layer.mlp_down);
  return ops.add(ops.add(std::move(mixed), x), fed);
}

Value Cohere2::forward(Ops& ops) const {
  Value x = embed(ops);
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
    x = layer_forward(ops, i, x);
    ops.tap(i, x);
  }
  return ops.norm(ops.logit_rows(x), final_norm_);
}

Value Cohere2::logits(Ops& ops, const Value& hidden) const {
  return ops.scale(ops.linear(hidden, head_.matrix.empty() ? embedding_ : head_), logit_scale_);
}

}  // namespace

const Family kCohere2 = {.read_spec = read_spec,
                         .load = [](const ModelFiles& files, ThreadPool& pool) -> std::shared_ptr<const Decoder> {
                           return std::make_shared<Cohere2>(files, pool);
                         }};

}  // namespace slipring
