// A DFlash drafter: proposes a block of tokens at once from the target model's own hidden states.
#pragma once

#include <memory>
#include <vector>

#include <slipring/model_spec.h>

#include "formats/model_files.h"
#include "kernels/thread_pool.h"
#include "ops/ops.h"

namespace slipring {

/// Facts of a drafter.
struct DrafterSpec {
  int64_t hidden_size = 0;  ///< the target's
  int64_t block_size = 0;   ///< tokens of a block, the anchor included
  int32_t mask_token = 0;   ///< id whose embedding stands for a token to guess
  std::vector<int> taps;    ///< target layers (zero-based) whose outputs are read, ascending
  std::vector<LayerSpec> layers;
};

/// Immutable. Two functions over Ops that share one set of rings, one ring a layer of `window` slots:
/// the context enters by inject(), a block is guessed by draft().
/// Threads: const, shared freely.
class Drafter {
 public:
  virtual ~Drafter() = default;
  const DrafterSpec& spec() const noexcept { return spec_; }
  int64_t weight_bytes() const noexcept { return weight_bytes_; }
  uint64_t fingerprint() const noexcept { return fingerprint_; }

  /// Writes the keys and values of accepted positions. The step's embeddings are the target's tapped hidden states side
  /// by side [T, taps * hidden_size]; its offset is the position of the first of them.
  virtual void inject(Ops& ops) const = 0;
  /// Hidden states of the block after the final norm [block, hidden_size]; row j proposes the token at the anchor's
  /// position + j through the target's logits(). The step's embeddings are rows of the target's embedding table,
  /// without its norm: the anchor token, then the mask token; its offset is the anchor's position = positions injected.
  /// Nothing is written.
  virtual Value draft(Ops& ops) const = 0;

 protected:
  DrafterSpec spec_;
  int64_t weight_bytes_ = 0;
  uint64_t fingerprint_ = 0;
};

/// @throws Error{unsupported, bad_file} naming what is wrong
std::shared_ptr<const Drafter> load_drafter(const ModelFiles& files, ThreadPool& pool);
/// Whether these files hold a drafter rather than a model.
bool is_drafter(const ModelFiles& files);

}  // namespace slipring
