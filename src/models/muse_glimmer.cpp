// Muse Glimmer, text: three sliding layers with RoPE, then one full layer without position embedding, and so on.
//
// Per layer: norm, attention with scaleless QK norm and a sigmoid gate on its output, norm, residual; norm, SwiGLU,
// norm, residual (sandwich norms). Embeddings are normed; logits are multiplied, then soft-capped. Reference: Hugging
// Face transformers, modeling_muse_glimmer.py.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include <slipring/error.h>

#include "models/config.h"
#include "models/families.h"
#include "models/layer_parts.h"
#include "models/layered_decoder.h"

namespace slipring {
namespace {

struct Layer {
  Norm attention_norm, post_attention_norm, feed_forward_norm, post_feed_forward_norm;
  Norm q_norm, k_norm;
  AttentionPart attention;
  Linear gate;
  FeedForwardPart mlp;
  Rope rope;  ///< empty on layers without position embedding
};

class MuseGlimmer final : public LayeredDecoder {
 public:
  MuseGlimmer(const ModelFiles& files, ThreadPool& pool);

  Value embed(Ops& ops) const override;
  Value logits(Ops& ops, const Value& hidden) const override;

 private:
  Layer load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const;
  Value run_layer(Ops& ops, int index, const Value& x) const override;

  Norm embedding_norm_;
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
constexpr double kSoftcap = 20.0;
constexpr CommonDefaults kDefaults{.activation_key = "hidden_activation"};
constexpr double kOutputMultiplier = 0.19611613513818404;

ModelSpec read_spec(const ModelFiles& files) {
  ModelSpec spec;
  const CommonConfig config = read_common_config(files, kDefaults);
  const auto kinds = read_layer_kinds(files, config.n_layers, {.period = kPeriod, .full_residue = kPeriod - 1}, spec);
  fill_spec(spec, "muse_glimmer", files, config, kinds, read_window(files, kWindow, spec));
  const double theta = read_theta(files, "rope_parameters", kTheta);
  const auto thetas = files.reals({"layer_rope_theta", ""});
  if (thetas && thetas->size() != spec.layers.size()) {
    bad_key(files, "layer_rope_theta", fmt::format("{} numbers, one a layer", spec.layers.size()),
            std::to_string(thetas->size()));
  }
  if (const std::string type = rope_type(files, "rope_parameters"); type != "default") {
    throw Error(ErrorCode::unsupported, {.where = files.path().string() + ": rope type",
                                         .expected = "default",
                                         .got = "\"" + type + "\"",
                                         .advice = {}});
  }
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.rope_theta = layer.kind == LayerKind::sliding ? theta : 0.0;
    if (thetas) layer.rope_theta = (*thetas)[i];
    if (!(layer.rope_theta >= 0) || !std::isfinite(layer.rope_theta)) {
      bad_key(files, "layer_rope_theta", "numbers above 0, or 0 for no position embedding",
              fmt::format("{}", layer.rope_theta));
    }
  }
  return spec;
}

MuseGlimmer::MuseGlimmer(const ModelFiles& files, ThreadPool& pool) {
  WeightLoader load(files, pool);
  const CommonConfig config = read_common_config(files, kDefaults);
  spec_ = read_spec(files);
  output_multiplier_ =
      static_cast<float>(read_positive(files, {"output_multiplier", "logit_scale"}, kOutputMultiplier));
  softcap_ = read_softcap(files, {"final_logit_softcapping", "final_logit_softcapping"}, kSoftcap);
  embedding_norm_ = WeightLoader::plain_norm(config.hidden_size, config.norm_eps);

  load_embedding(load, config);
  for (int64_t i = 0; i < config.n_layers; ++i) layers_.push_back(load_layer(load, config, i));
  load_head(load, config, load.norm({"norm.weight", "output_norm.weight"}, config.hidden_size, config.norm_eps));
}

Layer MuseGlimmer::load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const {
  const ModelFiles& files = load.files();
  const double post_eps = read_positive(files, {"post_norm_eps", ""}, kPostNormEps);
  // The reference stores these norms relative to one; GGUF files hold the sum.
  const float offset = files.is_gguf() ? 0.0F : 1.0F;
  const auto norm = [&](Names names, double eps) { return load.norm(names, config.hidden_size, eps, index, offset); };
  Layer layer;
  layer.attention_norm = norm({"layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"}, config.norm_eps);
  layer.post_attention_norm =
      norm({"layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"}, post_eps);
  layer.feed_forward_norm =
      norm({"layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight"}, config.norm_eps);
  layer.post_feed_forward_norm =
      norm({"layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight"}, post_eps);
  if (files.is_gguf()) {  // the query factor is stored as the query norm's weight
    layer.q_norm = load.norm({"", "blk.{}.attn_q_norm.weight"}, config.head_dim, config.norm_eps, index);
    layer.k_norm = load.norm({"", "blk.{}.attn_k_norm.weight"}, config.head_dim, config.norm_eps, index);
  } else {
    layer.q_norm = WeightLoader::plain_norm(config.head_dim, config.norm_eps);
    layer.q_norm.weight = Tensor(DType::F32, {config.head_dim});
    const double factor = read_positive(files, {"qk_scale_factor", ""}, kQueryFactor);
    std::fill_n(layer.q_norm.weight.data<float>(), config.head_dim, static_cast<float>(factor));
    layer.k_norm = WeightLoader::plain_norm(config.head_dim, config.norm_eps);
  }
  layer.attention = load_attention(load, config, layer_spec(index), index);
  layer.gate = load.linear({"layers.{}.self_attn.gate_proj.weight", "blk.{}.attn_gate.weight"}, config.query_width(),
                           config.hidden_size, index);
  layer.mlp = load_feed_forward(load, config, index);
  // GGUF files hold q and k permuted for the interleaved rotation.
  const RopeLayout layout = files.is_gguf() ? RopeLayout::interleaved : RopeLayout::halves;
  if (layer_spec(index).rope_theta > 0) {
    layer.rope = plain_rope(layer_spec(index).rope_theta, config.head_dim, 1.0, layout);
  }
  return layer;
}

Value MuseGlimmer::embed(Ops& ops) const {
  if (ops.has_embeddings()) return ops.input_embeddings();
  return ops.norm(ops.embedding(ops.token_ids(), embedding_table()), embedding_norm_);
}

Value MuseGlimmer::run_layer(Ops& ops, int index, const Value& x) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const AttentionPart& attention = layer.attention;
  const int head_dim = attention.spec.head_dim;
  Value h = ops.norm(x, layer.attention_norm);
  auto projections = ops.linear(h, {&attention.q, &attention.k, &attention.v, &layer.gate});
  Value q = ops.norm(std::move(projections[0]), layer.q_norm);
  Value k = ops.norm(std::move(projections[1]), layer.k_norm);
  if (layer.rope.rotary_dim() > 0) {
    q = ops.rope(std::move(q), layer.rope, head_dim);
    k = ops.rope(std::move(k), layer.rope, head_dim);
  }
  Value mixed = attend(ops, index, q, k, projections[2], attention.spec);
  mixed = ops.linear(ops.sigmoid_gate(std::move(mixed), projections[3]), attention.o);
  Value middle = ops.add(ops.norm(std::move(mixed), layer.post_attention_norm), x);

  h = ops.norm(middle, layer.feed_forward_norm);
  h = feed_forward(ops, layer.mlp, Activation::silu, h);
  return ops.add(ops.norm(std::move(h), layer.post_feed_forward_norm), middle);
}

Value MuseGlimmer::logits(Ops& ops, const Value& hidden) const {
  Value y = LayeredDecoder::logits(ops, hidden);
  if (output_multiplier_ != 1.0F) y = ops.scale(std::move(y), output_multiplier_);
  return softcap_ > 0.0F ? ops.softcap(std::move(y), softcap_) : y;
}

}  // namespace

const Family kMuseGlimmer = make_family<MuseGlimmer, read_spec>();

}  // namespace slipring
