// gpt-oss: sliding and full layers by turns, the first one slides, with attention sinks and a mixture of experts.
//
// Per layer: norm, attention with a sink a head, residual; norm, mixture of experts, residual. Projections have biases;
// all layers rotate with YaRN's frequencies. Reference: Hugging Face transformers, modeling_gpt_oss.py.
#include "models/config.h"
#include "models/families.h"
#include "models/gpt_oss_experts.h"
#include "models/layer_parts.h"
#include "models/layered_decoder.h"

namespace slipring {
namespace {

struct Layer {
  Norm attention_norm, feed_forward_norm;
  AttentionPart attention;
  Mixture mixture;
};

class GptOss final : public LayeredDecoder {
 public:
  GptOss(const ModelFiles& files, ThreadPool& pool);

 private:
  Layer load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const;
  Value run_layer(Ops& ops, int index, const Value& x) const override;

  Rope rope_;
  std::vector<Layer> layers_;
};

constexpr int64_t kPeriod = 2;
constexpr int64_t kWindow = 128;
constexpr double kTheta = 150000.0;
constexpr int64_t kMostExperts = 1024;

ModelSpec read_spec(const ModelFiles& files) {
  ModelSpec spec;
  const CommonConfig config = read_common_config(files);
  const auto kinds = read_layer_kinds(files, config.n_layers, {.period = kPeriod, .full_residue = kPeriod - 1}, spec);
  fill_spec(spec, "gpt_oss", files, config, kinds, read_window(files, kWindow, spec));
  const double theta = read_theta(files, "rope_parameters", kTheta);
  for (LayerSpec& layer : spec.layers) layer.rope_theta = theta;
  return spec;
}

Mixture load_mixture(WeightLoader& load, const CommonConfig& config, int64_t layer) {
  const ModelFiles& files = load.files();
  MixtureSizes sizes{.hidden = config.hidden_size, .inner = config.intermediate_size};
  if (const Names key{{}, "expert_feed_forward_length"}; files.integer(key)) {
    sizes.inner = files.require_integer(key, 1, kMaxFeatures);
  }
  sizes.experts = files.require_integer({"num_local_experts", "expert_count"}, 1, kMostExperts);
  Mixture mixture;
  mixture.experts_per_token =
      static_cast<int>(files.require_integer({"num_experts_per_tok", "expert_used_count"}, 1, sizes.experts));
  mixture.alpha = static_cast<float>(read_positive(files, {"swiglu_alpha", ""}, 1.702));
  mixture.limit = static_cast<float>(read_positive(files, {"swiglu_limit", ""}, 7.0));
  mixture.router = load.linear_with_bias({"layers.{}.mlp.router.weight", "blk.{}.ffn_gate_inp.weight"},
                                         {"layers.{}.mlp.router.bias", "blk.{}.ffn_gate_inp.bias"}, sizes.experts,
                                         sizes.hidden, layer);
  mixture.experts = load_experts(load, sizes, layer);
  return mixture;
}

GptOss::GptOss(const ModelFiles& files, ThreadPool& pool) {
  WeightLoader load(files, pool);
  const CommonConfig config = read_common_config(files);
  spec_ = read_spec(files);
  rope_ = read_rope(load, spec_.layers.front().rope_theta, config.head_dim, "rope_parameters", RopeLayout::halves,
                    {.yarn_truncates = false});

  load_embedding(load, config);
  for (int64_t i = 0; i < config.n_layers; ++i) layers_.push_back(load_layer(load, config, i));
  load_head(load, config, load.norm({"norm.weight", "output_norm.weight"}, config.hidden_size, config.norm_eps));
}

Layer GptOss::load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const {
  const int64_t hidden = config.hidden_size;
  Layer layer;
  layer.attention_norm =
      load.norm({"layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"}, hidden, config.norm_eps, index);
  layer.feed_forward_norm =
      load.norm({"layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"}, hidden,
                config.norm_eps, index);
  layer.attention = load_attention(load, config, layer_spec(index), index);
  layer.attention.spec.sinks =
      load.vector({"layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"}, Shape{config.n_heads}, index);
  layer.mixture = load_mixture(load, config, index);
  return layer;
}

Value GptOss::run_layer(Ops& ops, int index, const Value& x) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const AttentionPart& attention = layer.attention;
  const int head_dim = attention.spec.head_dim;
  Value h = ops.norm(x, layer.attention_norm);
  auto projections = ops.linear(h, {&attention.q, &attention.k, &attention.v});
  const Value q = ops.rope(std::move(projections[0]), rope_, head_dim);
  const Value k = ops.rope(std::move(projections[1]), rope_, head_dim);
  Value mixed = attend(ops, index, q, k, projections[2], attention.spec);
  const Value middle = ops.add(ops.linear(mixed, attention.o), x);

  h = ops.norm(middle, layer.feed_forward_norm);
  return ops.add(ops.moe(h, layer.mixture), middle);
}

}  // namespace

const Family kGptOss = make_family<GptOss, read_spec>();

}  // namespace slipring
