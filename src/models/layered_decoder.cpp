#include "models/layered_decoder.h"

#include <optional>

#include "models/config.h"

namespace slipring {

Value LayeredDecoder::embed(Ops& ops) const {
  return ops.has_embeddings() ? ops.input_embeddings() : ops.embedding(ops.token_ids(), embedding_);
}

Value LayeredDecoder::forward(Ops& ops) const {
  Value x = embed(ops);
  for (int i = 0; i < static_cast<int>(spec_.layers.size()); ++i) {
    x = run_layer(ops, i, x);
    ops.tap(i, x);
  }
  return ops.norm(ops.logit_rows(x), final_norm_);
}

Value LayeredDecoder::logits(Ops& ops, const Value& hidden) const {
  return ops.linear(hidden, head_.matrix.empty() ? embedding_ : head_);
}

void LayeredDecoder::load_embedding(WeightLoader& load, const CommonConfig& config) {
  embedding_ = load.linear(WeightLoader::kEmbedding, config.vocab_size, config.hidden_size);
}

void LayeredDecoder::load_head(WeightLoader& load, const CommonConfig& config, Norm final_norm) {
  final_norm_ = std::move(final_norm);
  const ModelFiles& files = load.files();
  const auto tied = files.is_gguf() ? std::nullopt : files.boolean({"tie_word_embeddings", {}});
  if (tied != true) {
    head_ = load.optional_linear({"/lm_head.weight", "output.weight"}, config.vocab_size, config.hidden_size);
    if (tied == false && head_.matrix.empty()) {
      bad_key(files, "tie_word_embeddings", "true, as there is no lm_head.weight", "false");
    }
  }
  load.check_all_used();
  (head_.matrix.empty() ? embedding_ : head_).fine_activations = true;
  weight_bytes_ = load.bytes();
  fingerprint_ = load.fingerprint();
}

}  // namespace slipring
