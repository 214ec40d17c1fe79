// gpt-oss: sliding and full layers by turns, the first one slides, with attention sinks and a mixture of experts.
//
// Per layer: norm, attention with a sink a head, residual; norm, mixture of experts, residual. Projections have biases;
// all layers rotate with YaRN's frequencies. Reference: Hugging Face transformers, modeling_gpt_oss.py.
#include <cmath>

#include "models/config.h"
#include "models/families.h"
#include "models/gpt_oss_experts.h"

namespace slipring {
namespace {

struct Layer {
  Norm attention_norm, feed_forward_norm;
  Linear q, k, v, o;
  Mixture mixture;
  AttentionSpec attention;
};

class GptOss final : public Decoder {
 public:
  GptOss(const ModelFiles& files, ThreadPool& pool);

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

float positive(const ModelFiles& files, std::string_view key, double fallback) {
  const double value = files.real({key, {}}).value_or(fallback);
  if (!(value > 0) || !std::isfinite(value)) bad_key(files, key, "a number above 0", std::to_string(value));
  return static_cast<float>(value);
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
  mixture.alpha = positive(files, "swiglu_alpha", 1.702);
  mixture.limit = positive(files, "swiglu_limit", 7.0);
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
                    /*yarn_truncates=*/false);

  embedding_ = load.linear(WeightLoader::kEmbedding, config.vocab_size, config.hidden_size);
  for (int64_t i = 0; i < config.n_layers; ++i) layers_.push_back(load_layer(load, config, i));
  final_norm_ = load.norm({"norm.weight", "output_norm.weight"}, config.hidden_size, config.norm_eps);
  head_ = load.optional_linear({"/lm_head.weight", "output.weight"}, config.vocab_size, config.hidden_size);
  (head_.matrix.empty() ? embedding_ : head_).fine_activations = true;
  weight_bytes_ = load.bytes();
  fingerprint_ = load.fingerprint();
}

Layer GptOss::load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const {
  const int64_t hidden = config.hidden_size;
  const int64_t query_width = int64_t{config.n_heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.n_kv_heads} * config.head_dim;
  const auto linear = [&](Names names, Names bias, int64_t out, int64_t in) {
    return load.linear_with_bias(names, bias, out, in, index);
  };
  Layer layer;
  layer.attention_norm =
      load.norm({"layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"}, hidden, config.norm_eps, index);
  layer.feed_forward_norm =
      load.norm({"layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"}, hidden,
                config.norm_eps, index);
  layer.q = linear({"layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
                   {"layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias"}, query_width, hidden);
  layer.k = linear({"layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
                   {"layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias"}, kv_width, hidden);
  layer.v = linear({"layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
                   {"layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"}, kv_width, hidden);
  layer.o = linear({"layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
                   {"layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias"}, hidden, query_width);
  layer.mixture = load_mixture(load, config, index);
  layer.attention = {
      .n_heads = config.n_heads,
      .n_kv_heads = config.n_kv_heads,
      .head_dim = config.head_dim,
      .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
      .softcap = 0.0F,
      .window = spec_.layers[static_cast<size_t>(index)].window,
      .sinks = load.vector({"layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"}, Shape{config.n_heads}, index)};
  return layer;
}

Value GptOss::embed(Ops& ops) const {
  return ops.has_embeddings() ? ops.input_embeddings() : ops.embedding(ops.token_ids(), embedding_);
}

Value GptOss::layer_forward(Ops& ops, int index, const Value& x) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const int head_dim = layer.attention.head_dim;
  Value h = ops.norm(x, layer.attention_norm);
  auto projections = ops.linear(h, {&layer.q, &layer.k, &layer.v});
  const Value q = ops.rope(std::move(projections[0]), rope_, head_dim);
  const Value k = ops.rope(std::move(projections[1]), rope_, head_dim);
  Value mixed = attend(ops, index, q, k, projections[2], layer.attention);
  const Value middle = ops.add(ops.linear(mixed, layer.o), x);

  h = ops.norm(middle, layer.feed_forward_norm);
  return ops.add(ops.moe(h, layer.mixture), middle);
}

Value GptOss::forward(Ops& ops) const {
  Value x = embed(ops);
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
    x = layer_forward(ops, i, x);
    ops.tap(i, x);
  }
  return ops.norm(ops.logit_rows(x), final_norm_);
}

Value GptOss::logits(Ops& ops, const Value& hidden) const {
  return ops.linear(hidden, head_.matrix.empty() ? embedding_ : head_);
}

}  // namespace

const Family kGptOss = {.read_spec = read_spec,
                        .load = [](const ModelFiles& files, ThreadPool& pool) -> std::shared_ptr<const Decoder> {
                          return std::make_shared<GptOss>(files, pool);
                        }};

}  // namespace slipring
