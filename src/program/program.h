// Program: one step of a model as SSA values, with caches as versioned states.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <slipring/layer_cache.h>
#include <slipring/ring.h>
#include <slipring/symint.h>

#include "ops/native_ops.h"
#include "ops/ops.h"

namespace slipring {

using ValueId = int32_t;

/// The dimensions that a program knows by name; everything else about shapes is a constant or made of these.
SymInt query_len_dim();  ///< tokens of the step
SymInt offset_dim();     ///< positions written before the step

enum class OpKind : uint8_t {
  token_ids,
  input_embeddings,
  embedding,
  linear,
  norm,
  rope,
  gated,
  sigmoid_gate,
  add,
  scale,
  softcap,
  columns,
  logit_rows,
  concat,     ///< state, k, v -> kv: the state as it stands, then the step's own keys
  write,      ///< state, k, v -> the state's next version
  read,       ///< state -> kv
  attention,  ///< q, kv
  moe         ///< x
};
std::string_view to_string(OpKind kind) noexcept;

enum class ValueKind : uint8_t {
  tensor,
  state,  ///< keys and values of one layer, one version of them
  kv      ///< what attention reads: a view of one version of a state, perhaps with the step's own keys behind it
};

struct ValueType {
  ValueKind kind = ValueKind::tensor;
  DType dtype = DType::F32;
  std::vector<SymInt> dims;  ///< a state's and a kv's are those of its keys: [slots, n_kv_heads, head_dim]

  bool same(const ValueType& other) const noexcept;
  std::string to_string() const;  ///< "F32 [query_len, 64]"
};

struct ProgramValue {
  ValueType type;
  int32_t state = -1;   ///< of states and kvs: whose
  int32_t version = 0;  ///< 0: as the step finds it
};

/// A cache of one layer: what a program takes in and gives back changed.
struct ProgramState {
  std::string name;  ///< "ring.3" or "full.3"
  int layer = 0;
  int64_t capacity = 0;  ///< slots; 0: a full cache
  int64_t window = 0;    ///< of a ring
  KVLayout layout;
  ValueId initial = -1;  ///< version 0
  ValueId final = -1;    ///< the version that the step leaves behind; initial if it never writes

  bool is_ring() const noexcept { return capacity > 0; }
  ring::Step step() const;  ///< of a ring, with symbolic offset and query_len
};

/// A weight of the model, by name. Programs refer to weights, they do not hold them.
struct Constant {
  std::string name;
  std::variant<std::shared_ptr<const Linear>, std::shared_ptr<const Norm>, Tensor> weight;
};

// What a node has besides its inputs.
struct WeightUse {
  int32_t constant = -1;
};
struct NormUse {
  int32_t constant = -1;  ///< -1: no weight
  NormKind kind = NormKind::rms;
  int64_t size = 0;
  float eps = 0.0F;
};
struct RopeUse {
  int32_t rope = -1;
  int head_dim = 0;
};
struct GatedUse {
  Activation activation = Activation::silu;
};
struct FactorUse {
  float factor = 1.0F;
};
struct ColumnsUse {
  int64_t first = 0;
  int64_t count = 0;
};
struct LogitRowsUse {
  LogitRows rows = LogitRows::all;
};
/// The begin index is a SymInt: it cannot hold a value that was read from a tensor.
struct WriteUse {
  SymInt begin;
};
struct AttentionUse {
  int n_heads = 0;
  float scale = 1.0F;
  float softcap = 0.0F;
  int64_t window = 0;
  bool both_ways = false;
  int32_t sinks = -1;  ///< constant, or -1
};
/// A mixture's maps are constants one after the other: the router, then each expert's gate, up and down.
struct MixtureUse {
  int32_t first = -1;  ///< constant: the router
  int32_t experts = 0;
  int32_t per_token = 0;
  float alpha = 1.0F;
  float limit = 1.0F;
  std::shared_ptr<const Mixture> mixture;  ///< made of those constants, by gather_mixture()

  static constexpr int32_t kMapsPerExpert = 3;
  int32_t router() const noexcept { return first; }
  /// The constants of one expert: gate, up, down.
  std::array<int32_t, kMapsPerExpert> expert(int64_t index) const noexcept {
    const int32_t gate = first + 1 + static_cast<int32_t>(index) * kMapsPerExpert;
    return {gate, gate + 1, gate + 2};
  }
};
using Attributes = std::variant<std::monostate, WeightUse, NormUse, RopeUse, GatedUse, FactorUse, ColumnsUse,
                                LogitRowsUse, WriteUse, AttentionUse, MixtureUse>;

struct Node {
  OpKind op = OpKind::token_ids;
  std::vector<ValueId> inputs;
  ValueId output = -1;
  Attributes attributes;

  template <class T>
  const T& get() const {
    return std::get<T>(attributes);
  }
};

struct ProgramOutput {
  std::string name;  ///< "logits", "hidden.5", "inputs_embeds"
  ValueId value = -1;
};

/// Name of the output that holds the residual stream after a layer: "hidden.5".
std::string tap_name(int layer);

/// Plain data; whoever changes it runs the verifier. Threads: const use from any number of threads.
struct Program {
  std::string name;
  StepMode mode = StepMode::prefill;
  std::vector<Constant> constants;
  std::vector<Rope> ropes;
  std::vector<ProgramState> states;
  std::vector<ProgramValue> values;
  std::vector<Node> nodes;  ///< in order of execution
  std::vector<ProgramOutput> outputs;
  ValueId hidden = -1;  ///< what the logits are made of: Decoder::forward() ends here; -1: no logits

  const ValueType& type(ValueId id) const { return values[static_cast<size_t>(id)].type; }
  const ProgramState& state_of(ValueId id) const {
    return states[static_cast<size_t>(values[static_cast<size_t>(id)].state)];
  }
  /// "%12", or "ring.3@1" for a state.
  std::string value_name(ValueId id) const;
  const Linear& linear(int32_t constant) const;
  bool has_ring() const noexcept;
  int count(OpKind op) const noexcept;
};

/// What the caller of a program must keep to. Derived from its nodes, never declared: a file cannot lie about it.
struct Obligations {
  bool single_token = false;              ///< a ring is read after it was written: query_len == 1
  std::vector<int64_t> no_wrap;           ///< offset % capacity + query_len <= capacity, for each of these capacities
  std::vector<std::string> text() const;  ///< "query_len == 1", "offset % 16 + query_len <= 16"
};
Obligations obligations(const Program& program);

/// The weights of a mixture, sharing the constants' storage. @throws Error{shape_mismatch} if those constants are not
/// all there and linear maps of fitting shapes
std::shared_ptr<const Mixture> gather_mixture(const Program& program, const MixtureUse& use);

/// The type that a node's output has by its inputs and attributes.
/// @throws Error{shape_mismatch} naming node and shapes; Error{internal} for attributes of another op
ValueType infer_type(const Program& program, const Node& node);

/// Removes nodes whose results reach neither an output nor a state's final version.
void remove_dead_nodes(Program& program);

/// Readable, complete but for the weights, and what parse_program() reads. docs/export.md has an example.
std::string to_text(const Program& program);

}  // namespace slipring
