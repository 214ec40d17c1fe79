// OLMo 3: three sliding layers, then one full one, and so on; and OLMo 2, the same without windows.
//
// Per layer: attention with QK norm over all heads together, norm, residual; SwiGLU, norm, residual (norms behind, not
// in front). Full layers may be stretched by YaRN, sliding ones never are. Reference: Hugging Face transformers,
// modeling_olmo3.py and modeling_olmo2.py.
#include "models/config.h"
#include "models/families.h"
#include "models/layer_parts.h"
#include "models/layered_decoder.h"

namespace slipring {
namespace {

struct Layer {
  Norm q_norm, k_norm, post_attention_norm, post_feed_forward_norm;
  AttentionPart attention;
  FeedForwardPart mlp;
  Rope rope;
};

class Olmo3 final : public LayeredDecoder {
 public:
  Olmo3(const ModelFiles& files, ThreadPool& pool);

 private:
  Layer load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const;
  Value run_layer(Ops& ops, int index, const Value& x) const override;

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
  load_embedding(load, config);
  for (int64_t i = 0; i < config.n_layers; ++i) layers_.push_back(load_layer(load, config, i));
  load_head(load, config, load.norm({"norm.weight", "output_norm.weight"}, config.hidden_size, config.norm_eps));
}

Layer Olmo3::load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const {
  const int64_t hidden = config.hidden_size;
  const auto norm = [&](Names names, int64_t size) { return load.norm(names, size, config.norm_eps, index); };
  Layer layer;
  layer.q_norm = norm({"layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"}, config.query_width());
  layer.k_norm = norm({"layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"}, config.kv_width());
  layer.post_attention_norm =
      norm({"layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"}, hidden);
  layer.post_feed_forward_norm =
      norm({"layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight"}, hidden);
  layer.attention = load_attention(load, config, layer_spec(index), index);
  layer.mlp = load_feed_forward(load, config, index);

  const LayerSpec& spec = layer_spec(index);
  layer.rope = spec.kind == LayerKind::sliding ? plain_rope(spec.rope_theta, config.head_dim)
                                               : read_rope(load, spec.rope_theta, config.head_dim,
                                                           "rope_parameters/full_attention", RopeLayout::halves);
  return layer;
}

Value Olmo3::run_layer(Ops& ops, int index, const Value& x) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const AttentionPart& attention = layer.attention;
  const int head_dim = attention.spec.head_dim;
  auto projections = ops.linear(x, {&attention.q, &attention.k, &attention.v});
  const Value q = ops.rope(ops.norm(std::move(projections[0]), layer.q_norm), layer.rope, head_dim);
  const Value k = ops.rope(ops.norm(std::move(projections[1]), layer.k_norm), layer.rope, head_dim);
  Value mixed = ops.linear(attend(ops, index, q, k, projections[2], attention.spec), attention.o);
  const Value middle = ops.add(ops.norm(std::move(mixed), layer.post_attention_norm), x);

  Value h = feed_forward(ops, layer.mlp, Activation::silu, middle);
  return ops.add(ops.norm(std::move(h), layer.post_feed_forward_norm), middle);
}

}  // namespace

const Family kOlmo3 = make_family<Olmo3, read_spec>();

}  // namespace slipring
