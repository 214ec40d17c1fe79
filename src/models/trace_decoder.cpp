#include "models/trace_decoder.h"

#include "program/trace_ops.h"

namespace slipring {
namespace {

TraceOptions drafter_options(std::string name, const std::shared_ptr<const Drafter>& drafter, DType kv_dtype,
                             int64_t embedding_cols) {
  TraceOptions options{.name = std::move(name),
                       .mode = StepMode::prefill,
                       .logits = LogitRows::all,
                       .kv_dtype = kv_dtype,
                       .layers = {},
                       .embedding_cols = embedding_cols,
                       .weights = drafter};
  for (const LayerSpec& layer : drafter->spec().layers) {
    options.layers.push_back(
        {.capacity = layer.window, .window = layer.window, .n_kv_heads = layer.n_kv_heads, .head_dim = layer.head_dim});
  }
  return options;
}

}  // namespace

Program trace_inject(std::string name, std::shared_ptr<const Drafter> drafter, DType kv_dtype) {
  const DrafterSpec& spec = drafter->spec();
  const int64_t cols = static_cast<int64_t>(spec.taps.size()) * spec.hidden_size;
  return trace(drafter_options(std::move(name), drafter, kv_dtype, cols), [&](TraceOps& ops) { drafter->inject(ops); });
}

Program trace_draft(std::string name, std::shared_ptr<const Drafter> drafter, DType kv_dtype) {
  return trace(drafter_options(std::move(name), drafter, kv_dtype, drafter->spec().hidden_size),
               [&](TraceOps& ops) { ops.output("hidden", drafter->draft(ops)); });
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
