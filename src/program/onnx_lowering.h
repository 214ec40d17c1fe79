// The lowering of one program to one ONNX graph. Internal to onnx_*.cpp: to_onnx() is the way in.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "program/onnx_export.h"
#include "program/onnx_int.h"

namespace slipring {

/// A kv value: keys and values where they lie, and the position of each key as a row [1, keys].
struct OnnxKV {
  OnnxName k, v;
  OnnxInt positions{0};
  std::string layout;  ///< which layout `positions` describes: equal layouts share their masks
};

/// Every function adds nodes to the graph and returns the name of their result. Threads: one.
class OnnxLowering {
 public:
  OnnxLowering(const Program& program, const WeightPlaces& places)
      : program_(program), places_(places), graph_(program.name), names_(program.values.size()), kv_(names_.size()) {}

  onnx::ModelProto run();

 private:
  using Attributes = OnnxGraph::Attributes;

  static size_t at(ValueId id) { return static_cast<size_t>(id); }
  const OnnxName& in(const Node& node, size_t i) const { return names_[at(node.inputs[i])]; }
  int64_t cols(ValueId id) const { return program_.type(id).dims[1].value(); }
  const Constant& constant(int32_t index) const { return program_.constants[static_cast<size_t>(index)]; }
  void set(const Node& step, OnnxName name) { names_[at(step.output)] = std::move(name); }

  // onnx_export.cpp: the frame, and what stands for short operations
  std::vector<OnnxGraph::Dim> dims(const ValueType& type) const { return onnx_dims(program_, type); }
  void make_inputs();
  void make_outputs();
  void lower(const Node& step);
  static Attributes axis(int64_t value) { return Attributes().set("axis", value); }
  OnnxName node(std::string_view op, const std::vector<OnnxName>& inputs, const Attributes& attributes = {}) {
    return graph_.node(op, inputs, attributes);
  }
  OnnxName reshape(const OnnxName& x, const std::vector<int64_t>& shape);
  OnnxName slice(const OnnxName& x, int64_t along, int64_t first, int64_t end);
  OnnxName cast(const OnnxName& x, DType from, DType to);
  /// First dimension of an input, as an int64 scalar: the only way in for an integer that is not a constant.
  OnnxInt length(const OnnxName& input);
  const OnnxInt& query_len() const { return *query_len_; }
  const OnnxInt& offset() const;
  OnnxInt integer(const SymInt& x);
  /// first, first + 1, ... first + count - 1, as [count] int64.
  OnnxName range(const OnnxInt& first, const OnnxInt& count);

  // onnx_weights.cpp
  OnnxName part(const std::string& name);
  OnnxName plain(const std::string& name);  ///< as float32 in the graph
  struct BlockScales {
    OnnxName scale, added;  ///< [rows, blocks] F32; `added` is empty for types without minima
  };
  const BlockScales& block_scales(const std::string& name, const PackedMatrix& matrix);
  OnnxName block_rows(const OnnxName& ids, int32_t table);
  OnnxName block_linear(const OnnxName& x, int32_t map);
  OnnxName embedding(const OnnxName& ids, int32_t table);
  OnnxName linear(const OnnxName& x, int32_t map);

  // onnx_ops.cpp
  struct Angles {
    OnnxName cos, sin;  ///< [query_len, 1, rotary_dim / 2]
  };
  OnnxName mean(const OnnxName& x);
  void norm(const Node& step);
  const Angles& angles(int32_t rope);
  void rope(const Node& step);
  OnnxName activation(Activation kind, const OnnxName& x);
  OnnxName softcap(const OnnxName& x, float cap);
  void logit_rows(const Node& step);

  // onnx_mixture.cpp
  OnnxName expert(const OnnxName& x, const MixtureUse& use, int64_t index);
  void mixture(const Node& step);

  // onnx_attention.cpp: caches, masks, attention
  const OnnxName& query_positions();  ///< of the step's tokens, [query_len, 1]
  OnnxName rounded(ValueId id, const ProgramState& state);
  const OnnxInt& positions(const std::string& layout, const ProgramState& state);
  void concat(const Node& step);
  void write(const Node& step);
  const OnnxName& write_index(const Node& step, const ProgramState& state);
  void read(const Node& step);
  const OnnxName& mask(const OnnxKV& kv, const AttentionUse& use);
  void attention(const Node& step);

  const Program& program_;
  const WeightPlaces& places_;
  OnnxGraph graph_;
  std::vector<OnnxName> names_;  // by value
  std::vector<OnnxKV> kv_;       // by value: states and kvs
  OnnxName tokens_;
  std::optional<OnnxInt> query_len_;
  std::optional<OnnxInt> offset_;
  OnnxName query_positions_;
  std::map<std::string, OnnxName> plain_;
  std::map<std::string, BlockScales> block_scales_;
  std::map<std::pair<OnnxName, int>, OnnxName> block_sums_;  // by x and the size of a block
  std::map<int32_t, Angles> angles_;
  std::map<std::pair<ValueId, int>, OnnxName> rounded_;
  std::map<std::string, OnnxInt> positions_;
  std::map<int64_t, OnnxName> write_index_;  // by capacity
  std::map<std::string, OnnxName> masks_;
};

}  // namespace slipring
