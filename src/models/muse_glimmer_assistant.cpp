// Muse Glimmer's DFlash drafter: a few sliding layers over the target's hidden states, and a block that looks both
// ways.
//
// Context: taps -> one projection -> norm -> each layer's keys and values. Block: norm, attention with QK norm over the
// context and the block itself, residual; norm, SwiGLU, residual. Reference: Hugging Face transformers,
// modeling_muse_glimmer_assistant.py.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include <slipring/error.h>

#include "models/config.h"
#include "models/drafter.h"
#include "models/weight_loader.h"

namespace slipring {
namespace {

struct Layer {
  Norm attention_norm, feed_forward_norm;
  Norm q_norm, k_norm;
  Linear q, k, v, o;
  Linear mlp_gate, mlp_up, mlp_down;
  AttentionSpec attention;
};

constexpr int64_t kMaxBlock = 256;
constexpr int64_t kMaxTaps = 64;

class MuseGlimmerAssistant final : public Drafter {
 public:
  MuseGlimmerAssistant(const ModelFiles& files, ThreadPool& pool);

  void inject(Ops& ops) const override;
  Value draft(Ops& ops) const override;

 private:
  void read_spec(const ModelFiles& files);
  Layer load_layer(WeightLoader& load, int64_t index, double eps, int64_t inner, int n_heads) const;

  Linear encoder_;
  Norm encoder_norm_, final_norm_;
  Rope rope_;
  std::vector<Layer> layers_;
};

MuseGlimmerAssistant::MuseGlimmerAssistant(const ModelFiles& files, ThreadPool& pool) {
  read_spec(files);
  const double eps = read_positive(files, {"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, 1e-5);
  const int64_t inner = files.require_integer({"intermediate_size", "feed_forward_length"}, 1, kMaxFeatures);
  const auto n_heads =
      static_cast<int>(files.require_integer({"num_attention_heads", "attention.head_count"}, 1, kMaxHeads));
  if (n_heads % spec_.layers.front().n_kv_heads != 0) {
    throw Error(ErrorCode::bad_file, {.where = files.path().string(),
                                      .expected = "heads that are a multiple of the KV heads",
                                      .got = fmt::format("{} and {}", n_heads, spec_.layers.front().n_kv_heads),
                                      .advice = {}});
  }
  rope_ = plain_rope(spec_.layers.front().rope_theta, spec_.layers.front().head_dim);
  const int64_t hidden = spec_.hidden_size;
  WeightLoader load(files, pool);
  encoder_ = load.linear({"/encoder.fc.weight", "fc.weight"}, hidden, hidden * static_cast<int64_t>(spec_.taps.size()));
  encoder_norm_ = load.norm({"/encoder.output_norm_enc.weight", "enc.output_norm.weight"}, hidden, eps);
  for (size_t i = 0; i < spec_.layers.size(); ++i) {
    layers_.push_back(load_layer(load, static_cast<int64_t>(i), eps, inner, n_heads));
  }
  final_norm_ = load.norm({"/norm.weight", "output_norm.weight"}, hidden, eps);
  weight_bytes_ = load.bytes();
  fingerprint_ = load.fingerprint();
}

void MuseGlimmerAssistant::read_spec(const ModelFiles& files) {
  spec_.hidden_size = files.require_integer({"hidden_size", "embedding_length"}, 1, kMaxFeatures);
  spec_.block_size = files.require_integer({"block_size", "block_size"}, 2, kMaxBlock);
  spec_.mask_token = static_cast<int32_t>(
      files.require_integer({"mask_token_id", "/tokenizer.ggml.mask_token_id"}, 0, kMaxVocabulary - 1));
  const int64_t n_layers = files.require_integer({"num_hidden_layers", "block_count"}, 1, kMaxLayers);
  const int64_t window = files.require_integer({"sliding_window", "attention.sliding_window"}, 1, kMaxContext);
  const auto n_kv_heads =
      static_cast<int>(files.require_integer({"num_key_value_heads", "attention.head_count_kv"}, 1, kMaxHeads));
  const auto head_dim = static_cast<int>(files.require_integer({"head_dim", "attention.key_length"}, 1, kMaxHeadDim));
  const double theta = read_theta(files, "rope_parameters", 500000.0);
  for (int64_t i = 0; i < n_layers; ++i) {
    spec_.layers.push_back({.kind = LayerKind::sliding,
                            .window = window,
                            .n_kv_heads = n_kv_heads,
                            .head_dim = head_dim,
                            .rope_theta = theta});
  }
  const Names taps_key{"target_layer_ids", "target_layers"};
  const auto taps = files.integers(taps_key);
  // GGUF counts the embedding as number 0, so the output of layer i is number i + 1 there.
  const int64_t first = files.is_gguf() ? 1 : 0;
  bool sound = taps && !taps->empty() && static_cast<int64_t>(taps->size()) <= kMaxTaps;
  for (size_t i = 0; sound && i < taps->size(); ++i) {
    const int64_t layer = (*taps)[i] - first;
    sound = layer >= 0 && layer < kMaxLayers && (i == 0 || layer > spec_.taps.back());
    if (sound) spec_.taps.push_back(static_cast<int>(layer));
  }
  if (!sound) {
    throw Error(ErrorCode::bad_file,
                {.where = files.path().string() + ": " + std::string(files.is_gguf() ? taps_key.gguf : taps_key.hf),
                 .expected = fmt::format("1 to {} layer numbers, ascending", kMaxTaps),
                 .got = taps ? "another list" : "no such key",
                 .advice = {}});
  }
}

Layer MuseGlimmerAssistant::load_layer(WeightLoader& load, int64_t index, double eps, int64_t inner,
                                       int n_heads) const {
  const LayerSpec& spec = spec_.layers[static_cast<size_t>(index)];
  const int64_t hidden = spec_.hidden_size;
  const int64_t query_width = int64_t{n_heads} * spec.head_dim;
  const int64_t kv_width = int64_t{spec.n_kv_heads} * spec.head_dim;
  const auto norm = [&](Names names, int64_t size) { return load.norm(names, size, eps, index); };
  const auto linear = [&](Names names, int64_t out, int64_t in) { return load.linear(names, out, in, index); };
  Layer layer;
  layer.attention_norm = norm({"/layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"}, hidden);
  layer.feed_forward_norm = norm({"/layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"}, hidden);
  layer.q_norm = norm({"/layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"}, spec.head_dim);
  layer.k_norm = norm({"/layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"}, spec.head_dim);
  layer.q = linear({"/layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"}, query_width, hidden);
  layer.k = linear({"/layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"}, kv_width, hidden);
  layer.v = linear({"/layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"}, kv_width, hidden);
  layer.o = linear({"/layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"}, hidden, query_width);
  layer.mlp_gate = linear({"/layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"}, inner, hidden);
  layer.mlp_up = linear({"/layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"}, inner, hidden);
  layer.mlp_down = linear({"/layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"}, hidden, inner);
  layer.attention = {.n_heads = n_heads,
                     .n_kv_heads = spec.n_kv_heads,
                     .head_dim = spec.head_dim,
                     .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.head_dim))),
                     .softcap = 0.0F,
                     .window = spec.window,
                     .sinks = {},
                     .both_ways = true};
  return layer;
}

void MuseGlimmerAssistant::inject(Ops& ops) const {
  const Value context = ops.norm(ops.linear(ops.input_embeddings(), encoder_), encoder_norm_);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    auto projections = ops.linear(context, {&layer.k, &layer.v});
    const Value k = ops.rope(ops.norm(std::move(projections[0]), layer.k_norm), rope_, layer.attention.head_dim);
    ops.update(static_cast<int>(i), k, projections[1]);
  }
}

Value MuseGlimmerAssistant::draft(Ops& ops) const {
  Value x = ops.input_embeddings();
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const int head_dim = layer.attention.head_dim;
    Value h = ops.norm(x, layer.attention_norm);
    auto projections = ops.linear(h, {&layer.q, &layer.k, &layer.v});
    const Value q = ops.rope(ops.norm(std::move(projections[0]), layer.q_norm), rope_, head_dim);
    const Value k = ops.rope(ops.norm(std::move(projections[1]), layer.k_norm), rope_, head_dim);
    const KVHandle kv = ops.fetch_and_concat(static_cast<int>(i), k, projections[2]);
    x = ops.add(ops.linear(ops.attention(q, kv, layer.attention), layer.o), x);
    h = ops.norm(x, layer.feed_forward_norm);
    auto mlp = ops.linear(h, {&layer.mlp_gate, &layer.mlp_up});
    x = ops.add(ops.linear(ops.gated(Activation::silu, std::move(mlp[0]), mlp[1]), layer.mlp_down), x);
  }
  return ops.norm(std::move(x), final_norm_);
}

}  // namespace

bool is_drafter(const ModelFiles& files) {
  return files.architecture() == "dflash" || files.architecture() == "muse_glimmer_assistant";
}

std::shared_ptr<const Drafter> load_drafter(const ModelFiles& files, ThreadPool& pool) {
  if (is_drafter(files)) return std::make_shared<MuseGlimmerAssistant>(files, pool);
  throw Error(ErrorCode::unsupported, {.where = files.path().string(),
                                       .expected = "a drafter: architecture dflash or muse_glimmer_assistant",
                                       .got = "architecture \"" + files.architecture() + "\"",
                                       .advice = "give a DFlash drafter with -d"});
}

}  // namespace slipring
