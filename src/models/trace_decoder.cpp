#include "models/trace_decoder.h"

#include <utility>

#include "program/trace_ops.h"

namespace slipring {
namespace {

constexpr const char* kDrafterPrefix = "drafter.";

TraceOptions drafter_options(std::string name, const DrafterSpec& spec, DType kv_dtype) {
  TraceOptions options{.name = std::move(name),
                       .mode = StepMode::prefill,
                       .logits = LogitRows::all,
                       .prefix = kDrafterPrefix,
                       .kv_dtype = kv_dtype,
                       .layers = {}};
  for (const LayerSpec& layer : spec.layers) {
    options.layers.push_back(
        {.capacity = layer.window, .window = layer.window, .n_kv_heads = layer.n_kv_heads, .head_dim = layer.head_dim});
  }
  return options;
}

}  // namespace

Program trace_inject(std::string name, std::shared_ptr<const Drafter> drafter, DType kv_dtype,
                     const LinearSubstitute& substitute) {
  const DrafterSpec& spec = drafter->spec();
  TraceOptions options = drafter_options(std::move(name), spec, kv_dtype);
  options.embedding_cols = static_cast<int64_t>(spec.taps.size()) * spec.hidden_size;
  options.weights = drafter;
  options.substitute = substitute;
  return trace(std::move(options), [&](TraceOps& ops) { drafter->inject(ops); });
}

Program trace_draft(std::string name, std::shared_ptr<const Drafter> drafter, std::shared_ptr<const Decoder> target,
                    DType kv_dtype, const LinearSubstitute& substitute) {
  TraceOptions options = drafter_options(std::move(name), drafter->spec(), kv_dtype);
  options.weights = std::make_shared<std::pair<decltype(drafter), decltype(target)>>(drafter, target);
  options.substitute = substitute;
  return trace(std::move(options), [&](TraceOps& ops) {
    ops.set_prefix({});
    ops.give_embeddings(ops.embedding(ops.token_ids(), target->embedding_table()));
    ops.set_prefix(kDrafterPrefix);
    const Value hidden = drafter->draft(ops);
    ops.set_prefix({});
    ops.output("hidden", hidden);
    ops.output("logits", target->logits(ops, hidden));
  });
}

Program trace_decoder(std::string name, std::shared_ptr<const Decoder> decoder, const DecoderTraceOptions& options) {
  const ModelSpec& spec = decoder->spec();
  TraceOptions trace_options{.name = std::move(name),
                             .mode = options.mode,
                             .logits = options.logits,
                             .kv_dtype = options.kv_dtype,
                             .layers = {},
                             .embedding_cols = options.embeddings ? spec.hidden_size : 0,
                             .taps = options.taps,
                             .weights = decoder,
                             .substitute = options.substitute};
  for (const LayerSpec& layer : spec.layers) {
    const int64_t window = layer.kind == LayerKind::sliding && !options.embeddings ? layer.window : 0;
    trace_options.layers.push_back(
        {.capacity = window, .window = window, .n_kv_heads = layer.n_kv_heads, .head_dim = layer.head_dim});
  }
  return trace(std::move(trace_options), [&](TraceOps& ops) {
    const Value hidden = decoder->forward(ops);
    if (options.logits == LogitRows::none) return;
    ops.mark_hidden(hidden);
    ops.output("logits", decoder->logits(ops, hidden));
  });
}

Program trace_embeddings(std::string name, std::shared_ptr<const Decoder> decoder) {
  TraceOptions options;
  options.name = std::move(name);
  options.weights = decoder;
  return trace(std::move(options), [&](TraceOps& ops) { ops.output("inputs_embeds", decoder->embed(ops)); });
}

}  // namespace slipring
