// Phi-3, Phi-3.5 and Phi-4-mini: every layer slides, or, where the window reaches beyond the context or is missing,
// none.
//
// Per layer: norm, attention, residual; norm, SwiGLU, residual. q, k and v come in one matrix, gate and up in another;
// they are cut apart when loaded. Long-context files scale each dimension by a factor of its own (LongRoPE).
// Reference: Hugging Face transformers, modeling_phi3.py.
#include <algorithm>
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

class Phi3 final : public LayeredDecoder {
 public:
  Phi3(const ModelFiles& files, ThreadPool& pool, int64_t context);

 private:
  Layer load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const;
  Value run_layer(Ops& ops, int index, const Value& x) const override;

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

constexpr const char* kRope = "rope_parameters";

// LongRoPE has one set of factors for texts within the original context and one for longer texts, and a cached key
// cannot be moved from one to the other. So the set is chosen once, by the context that was asked for.
bool takes_long_factors(const ModelFiles& files, int64_t context) {
  return rope_type(files, kRope) == "longrope" && context > longrope_original_context(files, kRope);
}

ModelSpec read_spec(const ModelFiles& files, int64_t context) {
  ModelSpec spec;
  CommonConfig config = read_common_config(files);
  int64_t window = window_of(files, config, spec);
  if (rope_type(files, kRope) == "longrope") {
    const int64_t original = longrope_original_context(files, kRope);
    if (takes_long_factors(files, context)) {
      spec.notices.push_back(fmt::format(
          "{}: LongRoPE with the long factors, meant for texts of more than {} tokens, as a context of {} was "
          "asked for",
          files.path().string(), original, context));
    } else if (original < config.context_length) {
      spec.notices.push_back(fmt::format(
          "{}: LongRoPE with the short factors, which hold for the first {} of {} positions; a longer context "
          "has to be asked for",
          files.path().string(), original, config.context_length));
      config.context_length = original;
    }
  }
  if (window >= config.context_length) window = 0;
  const std::vector<LayerKind> kinds(static_cast<size_t>(config.n_layers),
                                     window > 0 ? LayerKind::sliding : LayerKind::full);
  fill_spec(spec, "phi3", files, config, kinds, window);
  const double theta = read_theta(files, kRope, 10000.0);
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

// One matrix for q, k and v, or, as some converters write, three.
AttentionPart load_fused_attention(WeightLoader& load, const CommonConfig& config, const LayerSpec& layer,
                                   int64_t index) {
  const Names fused{"layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight"};
  if (load.find(fused, index).empty()) return load_attention(load, config, layer, index);
  const int64_t query_width = config.query_width();
  const int64_t kv_width = config.kv_width();
  const auto rows = [&](int64_t first, int64_t count) {
    return load.linear_rows(fused, query_width + 2 * kv_width, first, count, config.hidden_size, index);
  };
  AttentionPart part;
  part.q = rows(0, query_width);
  part.k = rows(query_width, kv_width);
  part.v = rows(query_width + kv_width, kv_width);
  part.o = load.linear({"layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"}, config.hidden_size,
                       query_width, index);
  part.spec = attention_spec(config.n_heads, layer);
  return part;
}

// The same for gate and up; a fused matrix goes by the name of up in GGUF files.
FeedForwardPart load_fused_feed_forward(WeightLoader& load, const CommonConfig& config, int64_t index) {
  if (!load.find({"layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"}, index).empty()) {
    return load_feed_forward(load, config, index);
  }
  const int64_t inner = config.intermediate_size;
  const auto rows = [&](int64_t first) {
    return load.linear_rows({"layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight"}, 2 * inner, first, inner,
                            config.hidden_size, index);
  };
  FeedForwardPart part;
  part.gate = rows(0);
  part.up = rows(inner);
  part.down =
      load.linear({"layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"}, config.hidden_size, inner, index);
  return part;
}

Phi3::Phi3(const ModelFiles& files, ThreadPool& pool, int64_t context) {
  WeightLoader load(files, pool);
  const CommonConfig config = read_common_config(files);
  spec_ = read_spec(files, context);
  const bool long_factors = takes_long_factors(files, context);
  rope_ = read_rope(load, spec_.layers.front().rope_theta, rotary_dim_of(files, config), kRope, RopeLayout::halves,
                    {.long_factors = long_factors});

  load_embedding(load, config);
  for (int64_t i = 0; i < config.n_layers; ++i) layers_.push_back(load_layer(load, config, i));
  load_head(load, config, load.norm({"norm.weight", "output_norm.weight"}, config.hidden_size, config.norm_eps));
  if (long_factors) fingerprint_ = ~fingerprint_;  // a snapshot made with the other factors does not fit
}

Layer Phi3::load_layer(WeightLoader& load, const CommonConfig& config, int64_t index) const {
  const int64_t hidden = config.hidden_size;
  Layer layer;
  layer.attention_norm =
      load.norm({"layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"}, hidden, config.norm_eps, index);
  layer.feed_forward_norm = load.norm({"layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"}, hidden,
                                      config.norm_eps, index);
  layer.attention = load_fused_attention(load, config, layer_spec(index), index);
  layer.mlp = load_fused_feed_forward(load, config, index);
  return layer;
}

Value Phi3::run_layer(Ops& ops, int index, const Value& x) const {
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

const Family kPhi3 = {
    .read_spec = read_spec,
    .load = [](const ModelFiles& files, ThreadPool& pool, int64_t context) -> std::shared_ptr<const Decoder> {
      return std::make_shared<Phi3>(files, pool, context);
    }};

}  // namespace slipring
