// NativeOps: every op computes at once, over float32 buffers that are reused from step to step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <slipring/kv_view.h>
#include <slipring/layer_cache.h>

#include "kernels/attention.h"
#include "kernels/thread_pool.h"
#include "ops/ops.h"

namespace slipring {

/// Which rows of a sequence's step get logits.
enum class LogitRows : uint8_t { none, last, all };

/// One sequence's part of a step.
struct StepSequence {
  std::span<const std::unique_ptr<LayerCache>> caches;  ///< one a layer; all at the same offset
  int64_t offset = 0;                                   ///< position of the first token
  int64_t query_len = 0;                                ///< tokens of this sequence in the step, >= 1
  LogitRows logits = LogitRows::last;
};

/// What a step computes on. Rows are the sequences' tokens one after the other.
struct StepInput {
  StepMode mode = StepMode::prefill;
  std::span<const StepSequence> sequences;
  std::span<const int32_t> tokens;    ///< [T]; empty when embeddings are given
  const float* embeddings = nullptr;  ///< [T, embedding_cols], or null
  int64_t embedding_cols = 0;
  std::span<const int> taps;  ///< layers whose output is wanted
};

/// Threads: one at a time; it uses all threads of its pool.
class NativeOps final : public Ops {
 public:
  explicit NativeOps(ThreadPool& pool);
  ~NativeOps() override;

  ThreadPool& pool() noexcept { return pool_; }

  /// Starts a step; whatever an earlier one left uncommitted is dropped. The spans must outlive the step.
  /// Main mode is refused where a ring would be written before it is read by more than one query.
  /// @throws Error{write_first_needs_single_token} before anything is computed or written
  void begin(const StepInput& input);
  /// Allocates what commit(index, count) needs. @throws Error{out_of_memory}; take_back() frees what there is by then
  void reserve(size_t index, int64_t count);
  /// Writes the first `count` positions of sequence `index` into its caches (rings in as few updates as fit) and drops
  /// the rest. In main mode the step has written already; then count must be the sequence's query_len, and nothing more
  /// happens. After reserve() of as many it allocates nothing and does not fail.
  void commit(size_t index, int64_t count);
  /// The caches of sequence `index` as they were before the step, byte for byte, what was reserved included.
  /// @pre not committed
  void take_back(size_t index) noexcept;
  /// Rows of `value`, valid while the handle lives and until the next op.
  std::span<const float> data(const Value& value) const;
  int64_t rows(const Value& value) const;
  int64_t cols(const Value& value) const;
  /// The tapped hidden states [T, hidden_size], in the order of StepInput::taps.
  const std::vector<Value>& taps() const noexcept { return taps_; }
  /// Ends the step: uncommitted writes and handles held for it are dropped.
  void end();
  /// Bytes of the scratch buffers.
  int64_t scratch_bytes() const noexcept;

  StepMode mode() const override { return input_.mode; }
  Value token_ids() override;
  bool has_embeddings() const override { return input_.embeddings != nullptr; }
  Value input_embeddings() override;
  Value embedding(const Value& ids, const Linear& table) override;
  using Ops::linear;
  std::vector<Value> linear(const Value& x, std::span<const Linear* const> maps) override;
  Value norm(Value x, const Norm& norm) override;
  Value rope(Value x, const Rope& rope, int head_dim) override;
  Value gated(Activation activation, Value gate, const Value& up) override;
  Value sigmoid_gate(Value x, const Value& gate) override;
  Value add(Value a, const Value& b) override;
  Value scale(Value x, float factor) override;
  Value softcap(Value x, float cap) override;
  Value columns(const Value& x, int64_t first, int64_t count) override;
  Value moe(const Value& x, const Mixture& mixture) override;
  Value logit_rows(const Value& x) override;
  KVHandle fetch_and_concat(int layer, const Value& k, const Value& v) override;
  void update(int layer, const Value& k, const Value& v) override;
  KVHandle update_and_fetch(int layer, const Value& k, const Value& v) override;
  Value attention(const Value& q, KVHandle kv, const AttentionSpec& spec) override;
  void tap(int layer, const Value& x) override;

 private:
  struct Slot;
  struct Buffer;
  struct RopeTable;
  struct PendingLayer;  // the step's new keys and values of one layer, one block a sequence
  struct Overwritten;   // a ring slot that a write-first step has written, and where in saved_ its old content is

  void retain(int32_t id) noexcept override;
  void release(int32_t id) noexcept override;
  Slot& slot(const Value& value) const;
  Value make(int64_t rows, int64_t cols);
  float* out(const Value& value);  ///< what a value that was just made is written to
  /// x itself if this is its last handle, a new value of the same shape otherwise.
  Value reuse(Value x);
  const RopeTable& rope_table(const Rope& rope);
  PendingLayer& round(int layer, const Value& k, const Value& v);
  /// The views of all sequences, each from fetch(cache, block, sequence).
  template <class Fetch>
  KVHandle fetch(int layer, const Value& k, const Value& v, const Fetch& fetch);
  void expect_cols(const char* op, const Value& x, int64_t cols) const;
  void expect_same(const char* op, const Value& a, const Value& b) const;

  ThreadPool& pool_;
  StepInput input_;
  int64_t total_rows_ = 0;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<int32_t> free_slots_;
  std::vector<Buffer> free_buffers_;
  std::vector<RopeTable> rope_tables_;
  std::vector<PendingLayer> pending_;  // by layer
  std::vector<Overwritten> overwritten_;
  std::vector<std::byte> saved_;
  std::vector<std::vector<KVView>> views_;  // by KVHandle, one view a sequence
  std::vector<Value> taps_;
};

}  // namespace slipring
