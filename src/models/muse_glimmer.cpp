// Muse Glimmer, text: three sliding layers with RoPE, then one full layer without position embedding, and so on.
//
// Per layer: norm, attention with scaleless QK norm and a sigmoid gate on its output, norm, residual; norm, SwiGLU,
// norm, residual (sandwich norms). Embeddings are normed; logits are multiplied, then soft-capped. Reference: Hugging
// Face transformers, modeling_muse_glimmer.py.
#include <algorithm>
#include <cmath>

#include "models/config.h"
#include "models/families.h"
#include "models/weight_loader.h"

namespace slipring {
namespace {

struct Layer {
  Norm attention_norm, post_attention_norm, feed_forward_norm, post_feed_forward_norm;
  Norm q_norm, k_norm;
  Linear q, k, v, gate, o;
  Linear mlp_gate, mlp_up, mlp_down;
  AttentionSpec attention;
  Rope rope;  ///< empty on layers without position embedding
};

class MuseGlimmer final : public Decoder {
 public:
  MuseGlimmer(const ModelFiles& files, ThreadPool& pool);

  Value embed(Ops& ops) const override;
  Value forward(Ops& ops) const override;
  Value logits(Ops& ops, const Value& hidden) const override;
  const Linear& embedding_table() const override { return embedding_; }
  bool ties_embeddings() const override { return head_.matrix.empty(); }

 private:
  Value layer_forward(Ops& ops, int index, const Value& x) const;

  Linear embedding_, head_;
  Norm embedding_norm_, final_norm_;
  std::vector<Layer> layers_;
  float output_multiplier_ = 1.0F;
  float softcap_ = 0.0F;
};

// Facts that published files may leave out; the values are the reference's defaults.
constexpr int64_t kPeriod = 4;
constexpr int64_t kWindow = 2048;
constexpr double kTheta = 500000.0;
constexpr double kQueryFactor = 3.87;
constexpr double kPostNormEps = 1e-8;
constexpr double kOutputMultiplier = 0.19611613513818404;

ModelSpec read_spec(const ModelFiles& files) {
  ModelSpec spec;
  const CommonConfig config = read_common_config(files);
  const auto kinds = read_layer_kinds(files, config.n_layers, {.period = kPeriod, .full_residue = kPeriod - 1}, spec);
  fill_spec(spec, "muse_glimmer", files, config, kinds, read_window(files, kWindow, spec));
  const double theta = files.real({"rope_parameters/rope_theta", "rope.freq_base"}).value_or(kTheta);
  const auto thetas = files.reals({"layer_rope_theta", ""});
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.rope_theta = layer.kind == LayerKind::sliding ? theta : 0.0;
    if (thetas && thetas->size() == spec.layers.size()) layer.rope_theta = (*thetas)[i];
  }
  return spec;
}

MuseGlimmer::MuseGlimmer(const ModelFiles& files, ThreadPool& pool) {
  WeightLoader load(files, pool);
  const CommonConfig config = read_common_config(files);
  spec_ = read_spec(files);
  const double post_eps = files.real({"post_norm_eps", ""}).value_or(kPostNormEps);
  const float query_factor = static_cast<float>(files.real({"qk_scale_factor", ""}).value_or(kQueryFactor));
  output_multiplier_ = static_cast<float>(files.real({"output_multiplier", "logit_scale"}).value_or(kOutputMultiplier));
  softcap_ = static_cast<float>(files.real({"final_logit_softcapping", "final_logit_softcapping"}).value_or(20.0));
  // The reference stores these norms relative to one; GGUF files hold the sum.
  const float offset = files.is_gguf() ? 0.0F : 1.0F;
  // GGUF files hold q and k permuted for the interleaved rotation.
  const RopeLayout layout = files.is_gguf() ? RopeLayout::interleaved : RopeLayout::halves;

  const int64_t hidden = config.hidden_size;
  const int64_t query_width = int64_t{config.n_heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.n_kv_heads} * config.head_dim;
  embedding_ = load.linear(WeightLoader::kEmbedding, config.vocab_size, hidden);
  embedding_norm_ = WeightLoader::plain_norm(hidden, config.norm_eps);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    Layer layer;
    const auto norm = [&](std::string_view hf, std::string_view gguf, double eps) {
      return load.norm({hf, gguf}, hidden, eps, i, offset);
    };
    layer.attention_norm = norm("layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", config.norm_eps);
    layer.post_attention_norm =
        norm("layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", post_eps);
    layer.feed_forward_norm =
        norm("layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", config.norm_eps);
    layer.post_feed_forward_norm =
        norm("layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", post_eps);
    if (files.is_gguf()) {  // the query factor is stored as the query norm's weight
      layer.q_norm = load.norm({"", "blk.{}.attn_q_norm.weight"}, config.head_dim, config.norm_eps, i);
      layer.k_norm = load.norm({"", "blk.{}.attn_k_norm.weight"}, config.head_dim, config.norm_eps, i);
    } else {
      layer.q_norm = WeightLoader::plain_norm(config.head_dim, config.norm_eps);
      layer.q_norm.weight = Tensor(DType::F32, {config.head_dim});
      std::fill_n(layer.q_norm.weight.data<float>(), config.head_dim, query_factor);
      layer.k_norm = WeightLoader::plain_norm(config.head_dim, config.norm_eps);
    }
    const auto linear = [&](std::string_view hf, std::string_view gguf, int64_t out, int64_t in) {
      return load.linear({hf, gguf}, out, in, i);
    };
    layer.q = linear("layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", query_width, hidden);
    layer.k = linear("layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", kv_width, hidden);
    layer.v = linear("layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", kv_width, hidden);
    layer.gate = linear("layers.{}.self_attn.gate_proj.weight", "blk.{}.attn_gate.weight", query_width, hidden);
    layer.o = linear("layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", hidden, query_width);
    const int64_t inner = config.intermediate_size;
    layer.mlp_gate = linear("layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight", inner, hidden);
    layer.mlp_up = linear("layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight", inner, hidden);
    layer.mlp_down = linear("layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", hidden, inner);

    const LayerSpec& spec = spec_.layers[static_cast<size_t>(i)];
    if (spec.rope_theta > 0) layer.rope = plain_rope(spec.rope_theta, config.head_dim, 1.0, layout);
    layer.attention = {.n_heads = config.n_heads,
                       .n_kv_heads = config.n_kv_heads,
                       .head_dim = config.head_dim,
                       .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
                       .softcap = 0.0F,
                       .window = spec.window,
                       .sinks = {}};
    layers_.push_back(std::move(layer));
  }
  final_norm_ = load.norm({"norm.weight", "output_norm.weight"}, hidden, config.norm_eps);
  head_ = load.optional_linear({"/lm_head.weight", "output.weight"}, config.vocab_size, hidden);
  (head_.matrix.empty() ? embedding_ : head_).fine_activations = true;
  weight_bytes_ = load.bytes();
  fingerprint_ = load.fingerprint();
}

Value MuseGlimmer::embed(Ops& ops) const {
  if (ops.has_embeddings()) return ops.input_embeddings();
  return ops.norm(ops.embedding(ops.token_ids(), embedding_), embedding_norm_);
}

Value MuseGlimmer::layer_forward(Ops& ops, int index, const Value& x) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const int head_dim = layer.attention.head_dim;
  Value h = ops.norm(x, layer.attention_norm);
  auto projections = ops.linear(h, {&layer.q, &layer.k, &layer.v, &layer.gate});
  Value q = ops.norm(std::move(projections[0]), layer.q_norm);
  Value k = ops.norm(std::move(projections[1]), layer.k_norm);
  if (layer.rope.rotary_dim() > 0) {
    q = ops.rope(std::move(q), layer.rope, head_dim);
    k = ops.rope(std::move(k), layer.rope, head_dim);
  }
  Value mixed = attend(ops, index, q, k, projections[2], layer.attention);
  mixed = ops.linear(ops.sigmoid_gate(std::move(mixed), projections[3]), layer.o);
  Value middle = ops.add(ops.norm(std::move(mixed), layer.post_attention_norm), x);

  h = ops.norm(middle, layer.feed_forward_norm);
  auto mlp = ops.linear(h, {&layer.mlp_gate, &layer.mlp_up});
  h = ops.linear(ops.gated(Activation::silu, std::move(mlp[0]), mlp[1]), layer.mlp_down);
  return ops.add(ops.norm(std::move(h), layer.post_feed_forward_norm), middle);
}

Value MuseGlimmer::forward(Ops& ops) const {
  Value x = embed(ops);
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
    x = layer_forward(ops, i, x);
    ops.tap(i, x);
  }
  return ops.norm(ops.logit_rows(x), final_norm_);
}

Value MuseGlimmer::logits(Ops& ops, const Value& hidden) const {
  Value y = ops.linear(hidden, head_.matrix.empty() ? embedding_ : head_);
  if (output_multiplier_ != 1.0F) y = ops.scale(std::move(y), output_multiplier_);
  return softcap_ > 0.0F ? ops.softcap(std::move(y), softcap_) : y;
}

}  // namespace

const Family kMuseGlimmer = {.read_spec = read_spec,
                             .load = [](const ModelFiles& files, ThreadPool& pool) -> std::shared_ptr<const Decoder> {
                               return std::make_shared<MuseGlimmer>(files, pool);
                             }};

}  // namespace slipring
