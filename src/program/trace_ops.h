// TraceOps: records what a model does as a Program, with symbolic query_len and offset.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ops/ops.h"
#include "program/program.h"

namespace slipring {

/// The cache of one layer, as a traced program should hold it.
struct TraceLayer {
  int64_t capacity = 0;  ///< slots of a ring; 0: a full cache
  int64_t window = 0;    ///< of a ring
  int n_kv_heads = 0;
  int head_dim = 0;
};

struct TraceOptions {
  std::string name = "prefill";
  StepMode mode = StepMode::prefill;
  LogitRows logits = LogitRows::all;  ///< which rows logit_rows() keeps
  std::string prefix = {};            ///< of the names of states and constants
  DType kv_dtype = DType::F16;        ///< F32, F16 or BF16
  std::vector<TraceLayer> layers;     ///< one a layer that has a cache
  int64_t embedding_cols = 0;         ///< > 0: the step is given hidden states [query_len, embedding_cols], not ids
  std::vector<int> taps = {};         ///< layers whose output the program gives as "hidden.N"
  std::shared_ptr<const void> weights = {};  ///< keeps the weights alive that constants refer to; may be null
  /// What stands in the program for a linear map (never for an embedding table): itself, if empty.
  std::function<std::shared_ptr<const Linear>(const std::shared_ptr<const Linear>&)> substitute = {};
};

/// Use: construct, run the model's functions on it, then finish(). A program refers to the weights that it was traced
/// with; they must outlive it unless TraceOptions::weights keeps them. Threads: one at a time.
class TraceOps final : public Ops {
 public:
  /// @throws Error{invalid_argument} for a bad geometry
  explicit TraceOps(TraceOptions options);

  void output(std::string name, const Value& value);
  /// What input_embeddings() gives from now on: a value of this program in place of an input.
  void give_embeddings(const Value& value) { given_embeddings_ = value; }
  /// Of the constants that are recorded from now on.
  void set_prefix(std::string prefix) { options_.prefix = std::move(prefix); }
  /// The states that the logits are made of, to be called between Decoder::forward() and Decoder::logits().
  void mark_hidden(const Value& value);
  /// The program, without what reaches no output and no state, verified. The tracer is empty then.
  /// @throws Error{bad_file} if what was recorded is not a sound program
  Program finish();
  /// The same unverified and untrimmed, for tests of the verifier.
  Program take() { return std::move(program_); }

  StepMode mode() const override { return program_.mode; }
  Value token_ids() override;
  bool has_embeddings() const override { return options_.embedding_cols > 0 || given_embeddings_; }
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
  void retain(int32_t /*id*/) noexcept override {}  // values of a program live as long as it does
  void release(int32_t /*id*/) noexcept override {}
  ValueId record(OpKind op, std::vector<ValueId> inputs, Attributes attributes = {});
  Value value(OpKind op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return handle(record(op, std::move(inputs), std::move(attributes)));
  }
  ProgramState& state(int layer);
  template <class Weight>
  int32_t constant(const std::string& name, const Weight& weight);
  /// The constant of what stands for a linear map.
  int32_t substituted(const Linear& map);
  int32_t add_constant(const std::string& name, const void* key, Constant constant);

  TraceOptions options_;
  Value given_embeddings_;
  Program program_;
  std::map<const void*, int32_t> constants_;  // by the weight's own address
};

/// Records what `body` does. @throws as TraceOps::finish()
Program trace(TraceOptions options, const std::function<void(TraceOps&)>& body);

}  // namespace slipring
