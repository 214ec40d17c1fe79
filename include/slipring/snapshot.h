// A session's whole state at one moment, in memory or in a file: going on from it equals never having stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include <slipring/kv_block.h>
#include <slipring/layer_cache.h>
#include <slipring/model_spec.h>
#include <slipring/session.h>
#include <slipring/tokenizer.h>

namespace slipring {

/// Where a sampler stands: together with the tokens, all that its next draw depends on besides its options.
struct SamplerState {
  uint64_t seed = 0;
  uint64_t draws = 0;
};

/// Tokens, the keys and values of every layer with the layer's geometry, the drafts' own state, and the sampler's
/// place. Positions are kept, not slots, so it fits a session of any chunk size, thread count and ring capacity.
/// Immutable. Threads: everything from any number of threads, except where a session is given (that session's).
class Snapshot {
 public:
  /// Copies a session's state between two of its calls.
  /// @param base  null, or an earlier snapshot with the same model: keys of full-attention layers are shared with it as
  ///              far as its tokens are the session's, so that many snapshots of a long text cost one copy of them.
  /// @throws Error{out_of_memory}
  static std::shared_ptr<const Snapshot> take(Session& session, const SamplerState& sampler = {},
                                              const std::shared_ptr<const Snapshot>& base = nullptr);
  /// Makes `session` what it was at the snapshot's first `length` tokens; below 0: all of them. Whatever the session
  /// held is forgotten. Drafts whose state is not in the snapshot guess nothing until the session is cleared.
  /// @throws Error{mismatch} for another model, geometry or KV type; Error{context_full} if the session's context is
  /// too small;
  ///         Error{invalid_argument} unless can_resume_at(length); the session is then as it was
  void restore(Session& session, int64_t length = -1) const;
  /// Whether the state at `length` tokens can be had from this one: always for all its tokens; for fewer as long as no
  /// ring had lost what a query there sees. One less is possible unless the session had just gone back itself.
  bool can_resume_at(int64_t length) const noexcept;

  int64_t length() const noexcept { return static_cast<int64_t>(tokens_.size()); }
  const std::vector<TokenId>& tokens() const noexcept { return tokens_; }
  const SamplerState& sampler() const noexcept { return sampler_; }
  uint64_t model_identity() const noexcept { return identity_; }
  DType kv_dtype() const noexcept { return kv_dtype_; }
  /// Bytes of memory, what is shared with other snapshots included.
  int64_t bytes() const noexcept;

  /// Writes a file that appears whole or not at all. Format: docs/snapshots.md.
  /// @throws Error{io, not_found}
  void save(const std::filesystem::path& path) const;
  /// @throws Error{not_found, io}; Error{bad_file} for a foreign, cut or damaged file, Error{unsupported} for a newer
  /// version
  static std::shared_ptr<const Snapshot> load(const std::filesystem::path& path);

  // For slipring's own layers.
  static std::shared_ptr<const Snapshot> take(const Sequence& sequence, const Model& model, const Drafts* drafts,
                                              const SamplerState& sampler, const std::shared_ptr<const Snapshot>& base);
  /// A new sequence in this state. @throws as restore()
  Sequence sequence(const Model& model, int64_t context, DType kv_dtype, int64_t length = -1) const;
  const std::vector<std::byte>& drafts_state() const noexcept { return drafts_state_; }

  /// What one layer holds.
  struct Layer {
    LayerKind kind = LayerKind::full;
    int64_t window = 0;          ///< 0 for full layers
    KVLayout layout;             ///< of one position
    int64_t first = 0;           ///< oldest position held
    std::vector<KVBlock> parts;  ///< positions first ... length - 1, one part after the other
  };
  const std::vector<Layer>& layers() const noexcept { return layers_; }

 private:
  friend class SnapshotFile;
  Snapshot() = default;
  void check_fits(const Model& model, int64_t context, DType kv_dtype, int64_t length) const;

  uint64_t identity_ = 0;
  DType kv_dtype_ = DType::F16;
  SamplerState sampler_;
  std::vector<TokenId> tokens_;
  std::vector<Layer> layers_;
  std::vector<std::byte> drafts_state_;
};

}  // namespace slipring
