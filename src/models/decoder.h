// What the engine, the tracer and the commands know of a model: its spec and three functions over Ops.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <slipring/model_spec.h>

#include "formats/model_files.h"
#include "kernels/thread_pool.h"
#include "ops/ops.h"

namespace slipring {

/// A loaded model: immutable weights and the forward pass over any Ops. Threads: const, shared freely.
class Decoder {
 public:
  virtual ~Decoder() = default;
  const ModelSpec& spec() const noexcept { return spec_; }
  /// Bytes that the packed weights hold.
  int64_t weight_bytes() const noexcept { return weight_bytes_; }
  /// 64 bits that differ between models with other weights or names: what snapshots are checked against.
  uint64_t fingerprint() const noexcept { return fingerprint_; }

  /// Hidden states of the step's tokens [T, hidden_size], after whatever the family does to embeddings.
  virtual Value embed(Ops& ops) const = 0;
  /// All layers and the final norm: [rows asked for, hidden_size].
  virtual Value forward(Ops& ops) const = 0;
  /// Logits of hidden states that forward() or a drafter gave.
  virtual Value logits(Ops& ops, const Value& hidden) const = 0;
  /// The embedding table itself, without any norm or factor: a drafter's input.
  virtual const Linear& embedding_table() const = 0;
  /// True where the logits are computed with the embedding table.
  virtual bool ties_embeddings() const { return false; }
  /// True where programs stand in for a family's code.
  virtual bool is_program() const { return false; }

 protected:
  ModelSpec spec_;
  int64_t weight_bytes_ = 0;
  uint64_t fingerprint_ = 0;
};

/// Builds the decoder of `files`: finds the family by architecture, reads the spec, packs the weights.
/// @param context  positions that it will be used for, 0: unknown. Only a model that computes long texts in another way
///                 than short ones looks at it (Phi-3's LongRoPE).
/// @throws Error{unsupported} listing the known architectures; Error{bad_file} naming a missing key or tensor
std::shared_ptr<const Decoder> load_decoder(const ModelFiles& files, ThreadPool& pool, int64_t context = 0);

/// The facts alone, without loading weights. @throws like load_decoder()
ModelSpec read_model_spec(const ModelFiles& files, int64_t context = 0);

/// Architectures that load_decoder() knows, as their files spell them, sorted.
std::vector<std::string> known_architectures();

}  // namespace slipring
