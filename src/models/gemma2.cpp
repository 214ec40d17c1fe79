// Gemma 2: sliding and full layers by turns, the first one slides.
//
// Per layer: norm, attention with soft-capped scores, norm, residual; norm, gated GELU, norm, residual (sandwich
// norms). Embeddings are scaled by sqrt(hidden_size) and shared with the output; logits are soft-capped. Reference:
// Hugging Face transformers, modeling_gemma2.py.
#include <cmath>

#include "models/config.h"
#include "models/families.h"

namespace slipring {
namespace {

struct Layer {
  Norm attention_norm, post_attention_norm, feed_forward_norm, post_feed_forward_norm;
  Linear q, k, v, o;
  Linear mlp_gate, mlp_up, mlp_down;
  AttentionSpec attention;
};

class Gemma2 final : public Decoder {
 public:
  Gemma2(const ModelFiles& files, ThreadPool& pool);

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
  float embedding_scale_ = 1.0F;
  float softcap_ = 0.0F;
};

constexpr int64_t kPeriod = 2;
constexpr int64_t kWindow = 4096;
constexpr double kAttentionSoftcap = 50.0;
constexpr double kLogitSoftcap = 30.0;
constexpr int64_t kLayersOf27B = 46;  // the one size whose scale is not head_dim^-0.5; GGUF files do not store it

double attention_scale(const ModelFiles& files, const CommonConfig& config) {
  if (const auto scalar = files.real({"query_pre_attn_scalar", ""})) return 1.0 / std::sqrt(*scalar);
  if (files.is_gguf() && config.n_layers == kLayersOf27B) {
    return 1.0 / std::sqrt(static_cast<double>(config.hidden_size) / config.n_heads);
  }
  return 1.0 / std::sqrt(static_cast<double>(config.head_dim));
}

ModelSpec read_spec(const ModelFiles& files) {
  ModelSpec spec;
  const CommonConfig config = read_common_config(files);
  const auto kinds = read_layer_kinds(files, config.n_layers, {.period = kPeriod, .full_residue = kPeriod - 1}, spec);
  fill_spec(spec, "gemma2", files, config, kinds, read_window(files, kWindow, spec));
  const double theta = read_theta(files, "rope_parameters", 10000.0);
  for (LayerSpec& layer : spec.layers) layer.rope_theta = theta;
  return spec;
}

Gemma2::Gemma2(const ModelFiles& files, ThreadPool& pool) {
  WeightLoader load(files, pool);
  const CommonConfig config = read_common_config(files);
  spec_ = read_spec(files);

  // The reference rounds this factor to the checkpoint's bfloat16; in float32 the two agree for the published sizes.
  embedding_scale_ = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  softcap_ =
      static_cast<float>(files.real({"final_logit_softcapping", "final_logit_softcapping"}).value_or(kLogitSoftcap));
  rope_ = read_rope(load, spec_.layers.front().rope_theta, config.head_dim, "rope_parameters", RopeLayout::halves);
  embedding_ = load.linear(WeightLoader::kEmbedding, config.vocab_size, config.hidden_size);
  for (int64_t i = 0; i < config.n_layers; ++i) layers_.push_back(load_layer(load, config, i));
  final_norm_ = load.norm({"norm.weight", "output_norm.weight"}, config.hidden_size, config.norm_eps, -1,
                          files.is_gguf() ? 0.0F : 1.0F);
  head_ = load.optional_linear({"/lm_head.weight", "output.weight"}, config.vocab_size, config.hidden_size);
  (head_.matrix.empty() ? embedding_ : head_).fine_activations = true;
  weight_bytes_ = load.bytes();
  fingerprint_ = load.fingerprint();
}

Layer Gemma2::load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const {
  const ModelFiles& files = load.files();
  // The reference stores norm weights relative to one; GGUF files hold the sum.
  const float offset = files.is_gguf() ? 0.0F : 1.0F;
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const int64_t query_width = int64_t{config.n_heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.n_kv_heads} * config.head_dim;
  const auto norm = [&](Names names, int64_t size) { return load.norm(names, size, config.norm_eps, index, offset); };
  const auto linear = [&](Names names, int64_t out, int64_t in) { return load.linear(names, out, in, index); };

  Layer layer;
  layer.attention_norm = norm({"layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"}, hidden);
  layer.post_attention_norm =
      norm({"layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"}, hidden);
  layer.feed_forward_norm = norm({"layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight"}, hidden);
  layer.post_feed_forward_norm =
      norm({"layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight"}, hidden);
  layer.q = linear({"layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"}, query_width, hidden);
  layer.k = linear({"layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"}, kv_width, hidden);
  layer.v = linear({"layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"}, kv_width, hidden);
  layer.o = linear({"layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"}, hidden, query_width);
  layer.mlp_gate = linear({"layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"}, inner, hidden);
  layer.mlp_up = linear({"layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"}, inner, hidden);
  layer.mlp_down = linear({"layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"}, hidden, inner);

  const auto softcap = files.real({"attn_logit_softcapping", "attn_logit_softcapping"});
  layer.attention = {.n_heads = config.n_heads,
                     .n_kv_heads = config.n_kv_heads,
                     .head_dim = config.head_dim,
                     .scale = static_cast<float>(attention_scale(files, config)),
                     .softcap = static_cast<float>(softcap.value_or(kAttentionSoftcap)),
                     .window = spec_.layers[static_cast<size_t>(index)].window,
                     .sinks = {}};
  return layer;
}

Value Gemma2::embed(Ops& ops) const {
  if (ops.has_embeddings()) return ops.input_embeddings();
  return ops.scale(ops.embedding(ops.token_ids(), embedding_), embedding_scale_);
}

Value Gemma2::layer_forward(Ops& ops, int index, const Value& x) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const int head_dim = layer.attention.head_dim;
  Value h = ops.norm(x, layer.attention_norm);
  auto projections = ops.linear(h, {&layer.q, &layer.k, &layer.v});
  const Value q = ops.rope(std::move(projections[0]), rope_, head_dim);
  const Value k = ops.rope(std::move(projections[1]), rope_, head_dim);
  Value mixed = ops.linear(attend(ops, index, q, k, projections[2], layer.attention), layer.o);
  const Value middle = ops.add(ops.norm(std::move(mixed), layer.post_attention_norm), x);

  h = ops.norm(middle, layer.feed_forward_norm);
  auto mlp = ops.linear(h, {&layer.mlp_gate, &layer.mlp_up});
  h = ops.linear(ops.gated(Activation::gelu_tanh, std::move(mlp[0]), mlp[1]), layer.mlp_down);
  return ops.add(ops.norm(std::move(h), layer.post_feed_forward_norm), middle);
}

Value Gemma2::forward(Ops& ops) const {
  Value x = embed(ops);
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
    x = layer_forward(ops, i, x);
    ops.tap(i, x);
  }
  return ops.norm(ops.logit_rows(x), final_norm_);
}

Value Gemma2::logits(Ops& ops, const Value& hidden) const {
  Value y = ops.linear(hidden, head_.matrix.empty() ? embedding_ : head_);
  return softcap_ > 0.0F ? ops.softcap(std::move(y), softcap_) : y;
}

}  // namespace

const Family kGemma2 = {.read_spec = read_spec,
                        .load = [](const ModelFiles& files, ThreadPool& pool) -> std::shared_ptr<const Decoder> {
                          return std::make_shared<Gemma2>(files, pool);
                        }};

}  // namespace slipring
