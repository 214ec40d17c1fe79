// Phi-3, Phi-3.5 and Phi-4-mini: every layer slides, or, where the window reaches beyond the context or is missing,
// none.
//
// Per layer: norm, attention, residual; norm, SwiGLU, residual. q, k and v come in one matrix, gate and up in another;
// they are cut apart when loaded. Long-context files scale each dimension by a factor of its own (LongRoPE).
// Reference: Hugging Face transformers, modeling_phi3.py.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "models/config.h"
#include "models/families.h"

namespace slipring {
namespace {

struct Layer {
  Norm attention_norm, feed_forward_norm;
  Linear q, k, v, o;
  Linear mlp_gate, mlp_up, mlp_down;
  AttentionSpec attention;
};

class Phi3 final : public Decoder {
 public:
  Phi3(const ModelFiles& files, ThreadPool& pool);

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

constexpr Names kWindow{"sliding_window", "attention.sliding_window"};
constexpr int64_t kShortContext = 4096;
constexpr int64_t kShortWindow = 2047;  // odd on purpose: the published value

// GGUF files write 0 for no window. Those older than the key are of models with 4k tokens of context and this window,
// or of models with more and a window that reaches beyond it.
int64_t window_of(const ModelFiles& files, const CommonConfig& config, ModelSpec& spec) {
  if (files.integer(kWindow)) return files.require_integer(kWindow, 0, kMaxContext);
  if (!files.is_gguf()) return 0;
  const int64_t window = config.context_length == kShortContext ? kShortWindow : 0;
  spec.notices.push_back(
      fmt::format("{}: no {}; using {}", files.path().string(), kWindow.gguf, window > 0 ? "2047" : "none"));
  return window;
}

ModelSpec read_spec(const ModelFiles& files) {
  ModelSpec spec;
  CommonConfig config = read_common_config(files);
  int64_t window = window_of(files, config, spec);
  if (rope_type(files, "rope_parameters") == "longrope") {
    const int64_t original = longrope_original_context(files, "rope_parameters");
    if (original < config.context_length) {
      spec.notices.push_back(
          fmt::format("{}: LongRoPE with the short factors, which hold for the first {} of {} positions",
                      files.path().string(), original, config.context_length));
      config.context_length = original;
    }
  }
  if (window >= config.context_length) window = 0;
  const std::vector<LayerKind> kinds(static_cast<size_t>(config.n_layers),
                                     window > 0 ? LayerKind::sliding : LayerKind::full);
  fill_spec(spec, "phi3", files, config, kinds, window);
  const double theta = read_theta(files, "rope_parameters", 10000.0);
  for (LayerSpec& layer : spec.layers) layer.rope_theta = theta;
  return spec;
}

// Phi-4-mini rotates three quarters of a head.
int rotary_dim_of(const ModelFiles& files, const CommonConfig& config) {
  int64_t rotary_dim = files.integer({"", "rope.dimension_count"}).value_or(config.head_dim);
  if (!files.is_gguf()) {
    auto part = files.real({"rope_parameters/partial_rotary_factor", ""});
    if (!part) part = files.real({"partial_rotary_factor", ""});
    rotary_dim = static_cast<int64_t>(config.head_dim * std::clamp(part.value_or(1.0), 0.0, 1.0));
  }
  if (rotary_dim < 2 || rotary_dim > config.head_dim || rotary_dim % 2 != 0) {
    bad_key(files, files.is_gguf() ? "rope.dimension_count" : "partial_rotary_factor",
            fmt::format("an even number of rotated dimensions, 2 to {}", config.head_dim), std::to_string(rotary_dim));
  }
  return static_cast<int>(rotary_dim);
}

Phi3::Phi3(const ModelFiles& files, ThreadPool& pool) {
  WeightLoader load(files, pool);
  const CommonConfig config = read_common_config(files);
  spec_ = read_spec(files);
  rope_ = read_rope(load, spec_.layers.front().rope_theta, rotary_dim_of(files, config), "rope_parameters",
                    RopeLayout::halves);

  embedding_ = load.linear(WeightLoader::kEmbedding, config.vocab_size, config.hidden_size);
  for (int64_t i = 0; i < config.n_layers; ++i) layers_.push_back(load_layer(load, config, i));
  final_norm_ = load.norm({"norm.weight", "output_norm.weight"}, config.hidden_size, config.norm_eps);
  head_ = load.optional_linear({"/lm_head.weight", "output.weight"}, config.vocab_size, config.hidden_size);
  (head_.matrix.empty() ? embedding_ : head_).fine_activations = true;
  weight_bytes_ = load.bytes();
  fingerprint_ = load.fingerprint();
}

Layer Phi3::load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const int64_t query_width = int64_t{config.n_heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.n_kv_heads} * config.head_dim;
  const auto qkv = [&](int64_t first, int64_t out) {
    return load.linear_rows({"layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight"},
                            query_width + 2 * kv_width, first, out, hidden, index);
  };
  const auto gate_up = [&](int64_t first) {
    return load.linear_rows({"layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight"}, 2 * inner, first, inner,
                            hidden, index);
  };
  Layer layer;
  layer.attention_norm =
      load.norm({"layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"}, hidden, config.norm_eps, index);
  layer.feed_forward_norm = load.norm({"layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"}, hidden,
                                      config.norm_eps, index);
  layer.q = qkv(0, query_width);
  layer.k = qkv(query_width, kv_width);
  layer.v = qkv(query_width + kv_width, kv_width);
  layer.o = load.linear({"layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"}, hidden, query_width, index);
  layer.mlp_gate = gate_up(0);
  layer.mlp_up = gate_up(inner);
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

Value Phi3::embed(Ops& ops) const {
  return ops.has_embeddings() ? ops.input_embeddings() : ops.embedding(ops.token_ids(), embedding_);
}

Value Phi3::layer_forward(Ops& ops, int index, const Value& x) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const int head_dim = layer.attention.head_dim;
  Value h = ops.norm(x, layer.attention_norm);
  auto projections = ops.linear(h, {&layer.q, &layer.k, &layer.v});
  const Value q = ops.rope(std::move(projections[0]), rope_, head_dim);
  const Value k = ops.rope(std::move(projections[1]), rope_, head_dim);
  Value mixed = attend(ops, index, q, k, projections[2], layer.attention);
  const Value middle = ops.add(ops.linear(mixed, layer.o), x);

  h = ops.norm(middle, layer.feed_forward_norm);
  auto mlp = ops.linear(h, {&layer.mlp_gate, &layer.mlp_up});
  return ops.add(ops.linear(ops.gated(Activation::silu, std::move(mlp[0]), mlp[1]), layer.mlp_down), middle);
}

Value Phi3::forward(Ops& ops) const {
  Value x = embed(ops);
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
    x = layer_forward(ops, i, x);
    ops.tap(i, x);
  }
  return ops.norm(ops.logit_rows(x), final_norm_);
}

Value Phi3::logits(Ops& ops, const Value& hidden) const {
  return ops.linear(hidden, head_.matrix.empty() ? embedding_ : head_);
}

}  // namespace

const Family kPhi3 = {.read_spec = read_spec,
                      .load = [](const ModelFiles& files, ThreadPool& pool) -> std::shared_ptr<const Decoder> {
                        return std::make_shared<Phi3>(files, pool);
                      }};

}  // namespace slipring
