// Llama and its kin (SmolLM2, Mistral): the degenerate case, where no layer has a ring, or, with a window, every layer
// has.
//
// Per layer: norm, attention, residual; norm, SwiGLU, residual. Biases where the files have them.
// Reference: Hugging Face transformers, modeling_llama.py and modeling_mistral.py.
#include <fmt/format.h>

#include "models/config.h"
#include "models/families.h"
#include "models/layer_parts.h"
#include "models/layered_decoder.h"

namespace slipring {
namespace {

struct Layer {
  Norm attention_norm, feed_forward_norm;
  AttentionPart attention;
  FeedForwardPart mlp;
};

class Llama final : public LayeredDecoder {
 public:
  Llama(const ModelFiles& files, ThreadPool& pool);

 private:
  Layer load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const;
  Value run_layer(Ops& ops, int index, const Value& x) const override;

  Rope rope_;
  std::vector<Layer> layers_;
};

ModelSpec read_spec(const ModelFiles& files) {
  ModelSpec spec;
  const CommonConfig config = read_common_config(files);
  // A window in the file (Mistral v0.1) makes every layer slide; null or no window, none.
  const bool slides = files.integer({"sliding_window", "attention.sliding_window"}).value_or(0) > 0;
  const std::vector<LayerKind> kinds(static_cast<size_t>(config.n_layers),
                                     slides ? LayerKind::sliding : LayerKind::full);
  fill_spec(spec, "llama", files, config, kinds, slides ? read_window(files, 0, spec) : 0);
  const double theta = read_theta(files, "rope_parameters", 10000.0);
  for (LayerSpec& layer : spec.layers) layer.rope_theta = theta;
  return spec;
}

Llama::Llama(const ModelFiles& files, ThreadPool& pool) {
  WeightLoader load(files, pool);
  const CommonConfig config = read_common_config(files);
  spec_ = read_spec(files);
  // GGUF files hold q and k permuted for the interleaved rotation.
  const RopeLayout layout = files.is_gguf() ? RopeLayout::interleaved : RopeLayout::halves;
  const int64_t rotary_dim = files.integer({"", "rope.dimension_count"}).value_or(config.head_dim);
  if (rotary_dim < 2 || rotary_dim > config.head_dim || rotary_dim % 2 != 0) {
    bad_key(files, files.is_gguf() ? "rope.dimension_count" : "head_dim",
            fmt::format("an even number from 2 to {}", config.head_dim), std::to_string(rotary_dim));
  }
  rope_ = read_rope(load, spec_.layers.front().rope_theta, static_cast<int>(rotary_dim), "rope_parameters", layout);

  load_embedding(load, config);
  for (int64_t i = 0; i < config.n_layers; ++i) layers_.push_back(load_layer(load, config, i));
  load_head(load, config, load.norm({"norm.weight", "output_norm.weight"}, config.hidden_size, config.norm_eps));
}

Layer Llama::load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const {
  const int64_t hidden = config.hidden_size;
  Layer layer;
  layer.attention_norm =
      load.norm({"layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"}, hidden, config.norm_eps, index);
  layer.feed_forward_norm = load.norm({"layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"}, hidden,
                                      config.norm_eps, index);
  layer.attention = load_attention(load, config, layer_spec(index), index);
  layer.mlp = load_feed_forward(load, config, index);
  return layer;
}

Value Llama::run_layer(Ops& ops, int index, const Value& x) const {
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
  return ops.add(feed_forward(ops, layer.mlp, Activation::silu, h), middle);
}

}  // namespace

const Family kLlama = make_family<Llama, read_spec>();

}  // namespace slipring
