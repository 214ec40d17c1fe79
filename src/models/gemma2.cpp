// Gemma 2: sliding and full layers by turns, the first one slides.
//
// Per layer: norm, attention with soft-capped scores, norm, residual; norm, gated GELU, norm, residual (sandwich
// norms). Embeddings are scaled by sqrt(hidden_size) and shared with the output; logits are soft-capped. Reference:
// Hugging Face transformers, modeling_gemma2.py.
#include <cmath>

#include "models/config.h"
#include "models/families.h"
#include "models/gemma.h"
#include "models/layer_parts.h"
#include "models/layered_decoder.h"

namespace slipring {
namespace {

struct Layer {
  Norm attention_norm, post_attention_norm, feed_forward_norm, post_feed_forward_norm;
  AttentionPart attention;
  FeedForwardPart mlp;
};

class Gemma2 final : public LayeredDecoder {
 public:
  Gemma2(const ModelFiles& files, ThreadPool& pool);

  Value embed(Ops& ops) const override;
  Value logits(Ops& ops, const Value& hidden) const override;

 private:
  Layer load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const;
  Value run_layer(Ops& ops, int index, const Value& x) const override;

  Rope rope_;
  std::vector<Layer> layers_;
  float embedding_scale_ = 1.0F;
  float softcap_ = 0.0F;
};

constexpr int64_t kPeriod = 2;
constexpr int64_t kWindow = 4096;
constexpr double kAttentionSoftcap = 50.0;
constexpr double kLogitSoftcap = 30.0;
constexpr int64_t kLayersOf27B = 46;
constexpr CommonDefaults kDefaults{.activation_key = "hidden_activation", .activation = "gelu_pytorch_tanh"};

ModelSpec read_spec(const ModelFiles& files) {
  ModelSpec spec;
  const CommonConfig config = read_common_config(files, kDefaults);
  const auto kinds = read_layer_kinds(files, config.n_layers, {.period = kPeriod, .full_residue = kPeriod - 1}, spec);
  fill_spec(spec, "gemma2", files, config, kinds, read_window(files, kWindow, spec));
  const double theta = read_theta(files, "rope_parameters", 10000.0);
  for (LayerSpec& layer : spec.layers) layer.rope_theta = theta;
  return spec;
}

Gemma2::Gemma2(const ModelFiles& files, ThreadPool& pool) {
  WeightLoader load(files, pool);
  const CommonConfig config = read_common_config(files, kDefaults);
  spec_ = read_spec(files);

  // The reference rounds this factor to the checkpoint's bfloat16; in float32 the two agree for the published sizes.
  embedding_scale_ = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  softcap_ = read_softcap(files, {"final_logit_softcapping", "final_logit_softcapping"}, kLogitSoftcap);
  rope_ = read_rope(load, spec_.layers.front().rope_theta, config.head_dim, "rope_parameters", RopeLayout::halves);
  load_embedding(load, config);
  for (int64_t i = 0; i < config.n_layers; ++i) layers_.push_back(load_layer(load, config, i));
  load_head(load, config,
            load.norm({"norm.weight", "output_norm.weight"}, config.hidden_size, config.norm_eps, -1,
                      gemma_norm_offset(files)));
}

Layer Gemma2::load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const {
  const ModelFiles& files = load.files();
  const int64_t hidden = config.hidden_size;
  const auto norm = [&](Names names, int64_t size) {
    return load.norm(names, size, config.norm_eps, index, gemma_norm_offset(files));
  };

  Layer layer;
  layer.attention_norm = norm({"layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"}, hidden);
  layer.post_attention_norm =
      norm({"layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"}, hidden);
  layer.feed_forward_norm = norm({"layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight"}, hidden);
  layer.post_feed_forward_norm =
      norm({"layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight"}, hidden);
  layer.attention = load_attention(load, config, layer_spec(index), index);
  layer.attention.spec.scale = static_cast<float>(gemma_attention_scale(files, config, kLayersOf27B));
  layer.attention.spec.softcap =
      read_softcap(files, {"attn_logit_softcapping", "attn_logit_softcapping"}, kAttentionSoftcap);
  layer.mlp = load_feed_forward(load, config, index);
  return layer;
}

Value Gemma2::embed(Ops& ops) const {
  if (ops.has_embeddings()) return ops.input_embeddings();
  return ops.scale(ops.embedding(ops.token_ids(), embedding_table()), embedding_scale_);
}

Value Gemma2::run_layer(Ops& ops, int index, const Value& x) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const AttentionPart& attention = layer.attention;
  const int head_dim = attention.spec.head_dim;
  Value h = ops.norm(x, layer.attention_norm);
  auto projections = ops.linear(h, {&attention.q, &attention.k, &attention.v});
  const Value q = ops.rope(std::move(projections[0]), rope_, head_dim);
  const Value k = ops.rope(std::move(projections[1]), rope_, head_dim);
  Value mixed = ops.linear(attend(ops, index, q, k, projections[2], attention.spec), attention.o);
  const Value middle = ops.add(ops.norm(std::move(mixed), layer.post_attention_norm), x);

  h = ops.norm(middle, layer.feed_forward_norm);
  h = feed_forward(ops, layer.mlp, Activation::gelu_tanh, h);
  return ops.add(ops.norm(std::move(h), layer.post_feed_forward_norm), middle);
}

Value Gemma2::logits(Ops& ops, const Value& hidden) const {
  Value y = LayeredDecoder::logits(ops, hidden);
  return softcap_ > 0.0F ? ops.softcap(std::move(y), softcap_) : y;
}

}  // namespace

const Family kGemma2 = make_family<Gemma2, read_spec>();

}  // namespace slipring
