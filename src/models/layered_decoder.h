// What the families share around their own layers: an embedding table, a stack of layers, a final norm and a head.
#pragma once

#include "models/config.h"

namespace slipring {

/// A family derives from it, loads its layers between load_embedding() and load_head(), and says what one layer does.
/// Families that treat embeddings or logits in their own way override embed() and logits().
class LayeredDecoder : public Decoder {
 public:
  /// Rows of the table, or the hidden states that the step's caller gave.
  Value embed(Ops& ops) const override;
  Value forward(Ops& ops) const final;
  Value logits(Ops& ops, const Value& hidden) const override;
  const Linear& embedding_table() const final { return embedding_; }
  bool ties_embeddings() const final { return head_.matrix.empty(); }

 protected:
  /// The residual stream after layer `index`, from the one before it.
  virtual Value run_layer(Ops& ops, int index, const Value& x) const = 0;

  void load_embedding(WeightLoader& load, const CommonConfig& config);
  /// The head, where the files have one of their own, and the account of everything that was loaded: call it last.
  void load_head(WeightLoader& load, const CommonConfig& config, Norm final_norm);

  const LayerSpec& layer_spec(int64_t index) const { return spec_.layers[static_cast<size_t>(index)]; }

 private:
  Linear embedding_, head_;
  Norm final_norm_;
};

}  // namespace slipring
