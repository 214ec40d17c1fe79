// Cohere 2 (Command R7B, Command A): three sliding layers with RoPE, then one full layer without position embedding.
//
// Per layer: one layer norm; attention and SwiGLU side by side on it; residual. Embeddings are shared with the output;
// logits are scaled. Reference: Hugging Face transformers, modeling_cohere2.py.
#include "models/config.h"
#include "models/families.h"
#include "models/layer_parts.h"
#include "models/layered_decoder.h"

namespace slipring {
namespace {

struct Layer {
  Norm norm;
  AttentionPart attention;
  FeedForwardPart mlp;
};

class Cohere2 final : public LayeredDecoder {
 public:
  Cohere2(const ModelFiles& files, ThreadPool& pool);

  Value logits(Ops& ops, const Value& hidden) const override;

 private:
  Layer load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const;
  Value run_layer(Ops& ops, int index, const Value& x) const override;

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
  const double eps = read_positive(load.files(), {"layer_norm_eps", "attention.layer_norm_epsilon"}, 1e-5);
  Norm norm = load.norm(names, config.hidden_size, eps, layer);
  norm.kind = NormKind::layer;
  return norm;
}

Cohere2::Cohere2(const ModelFiles& files, ThreadPool& pool) {
  WeightLoader load(files, pool);
  const CommonConfig config = read_common_config(files);
  spec_ = read_spec(files);
  logit_scale_ = static_cast<float>(read_positive(files, {"logit_scale", "logit_scale"}, 0.0625));
  // Both formats hold q and k for the interleaved rotation.
  rope_ = read_rope(load, read_theta(files, "rope_parameters", 10000.0), config.head_dim, "rope_parameters",
                    RopeLayout::interleaved);

  load_embedding(load, config);
  for (int64_t i = 0; i < config.n_layers; ++i) layers_.push_back(load_layer(load, config, i));
  load_head(load, config, layer_norm(load, {"norm.weight", "output_norm.weight"}, config));
}

Layer Cohere2::load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const {
  Layer layer;
  layer.norm = layer_norm(load, {"layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"}, config, index);
  layer.attention = load_attention(load, config, layer_spec(index), index);
  layer.mlp = load_feed_forward(load, config, index);
  return layer;
}

Value Cohere2::run_layer(Ops& ops, int index, const Value& x) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const AttentionPart& attention = layer.attention;
  const int head_dim = attention.spec.head_dim;
  const Value h = ops.norm(x, layer.norm);
  auto projections = ops.linear(h, {&attention.q, &attention.k, &attention.v, &layer.mlp.gate, &layer.mlp.up});
  Value q = std::move(projections[0]);
  Value k = std::move(projections[1]);
  if (layer_spec(index).rope_theta > 0) {
    q = ops.rope(std::move(q), rope_, head_dim);
    k = ops.rope(std::move(k), rope_, head_dim);
  }
  Value mixed = ops.linear(attend(ops, index, q, k, projections[2], attention.spec), attention.o);
  const Value fed = ops.linear(ops.gated(Activation::silu, std::move(projections[3]), projections[4]), layer.mlp.down);
  return ops.add(ops.add(std::move(mixed), x), fed);
}

Value Cohere2::logits(Ops& ops, const Value& hidden) const {
  return ops.scale(LayeredDecoder::logits(ops, hidden), logit_scale_);
}

}  // namespace

const Family kCohere2 = make_family<Cohere2, read_spec>();

}  // namespace slipring
