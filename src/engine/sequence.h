// One sequence's caches and tokens: what a session, a snapshot and the scheduler hold.
#pragma once

#include <memory>
#include <vector>

#include <slipring/layer_cache.h>
#include <slipring/model_spec.h>
#include <slipring/tokenizer.h>

namespace slipring {

/// The caches of all layers stand at the same offset = tokens.size(), between steps.
struct Sequence {
  std::vector<std::unique_ptr<LayerCache>> caches;  ///< one a layer
  std::vector<TokenId> tokens;                      ///< everything the caches have seen
  std::vector<int64_t> ring_capacities;             ///< of the layers that have a ring, without repeats

  int64_t length() const noexcept { return static_cast<int64_t>(tokens.size()); }
};

/// Empty caches for a model: rings of exactly `window` slots for sliding layers, growing caches for the others.
/// @throws Error{invalid_argument, dtype_mismatch}
Sequence make_sequence(const std::vector<LayerSpec>& layers, DType kv_dtype);

/// Bytes that the sequence's caches hold now.
int64_t bytes_held(const Sequence& sequence) noexcept;

}  // namespace slipring
