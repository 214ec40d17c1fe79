#include "program/onnx_export.h"

#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <optional>

#include <slipring/error.h>

#include "program/onnx_int.h"
#include "program/verify.h"

namespace slipring {

OnnxName state_input(const ProgramState& state, char part) {
  return fmt::format("{}.{}", state.name, part);
}
OnnxName state_output(const ProgramState& state, char part) {
  return fmt::format("{}.{}.next", state.name, part);
}
OnnxName offset_input(const Program& program) {
  if (program.states.empty()) return {};
  for (const ProgramState& state : program.states) {
    if (!state.is_ring()) return state_input(state, 'k');
  }
  return "past";
}

namespace {

using Attributes = OnnxGraph::Attributes;

Attributes axis(int64_t value) {
  return Attributes().set("axis", value);
}

OnnxGraph::Dim dim(const SymInt& size) {
  if (size.is_constant()) return {.value = size.value(), .name = {}};
  return {.value = 0, .name = size.same_expression(offset_dim() + query_len_dim()) ? "seq_len" : size.to_string()};
}

std::vector<OnnxGraph::Dim> dims(const ValueType& type) {
  std::vector<OnnxGraph::Dim> result;
  for (const SymInt& size : type.dims) result.push_back(dim(size));
  return result;
}

/// A kv value: keys and values where they lie, and the position of each key as a row [1, keys].
struct OnnxKV {
  OnnxName k, v;
  OnnxInt positions{0};
  std::string layout;  ///< which layout `positions` describes: equal layouts share their masks
};

class Lowering {
 public:
  Lowering(const Program& program, const WeightPlaces& places)
      : program_(program), places_(places), graph_(program.name), names_(program.values.size()), kv_(names_.size()) {}

  onnx::ModelProto run() {
    make_inputs();
    for (const Node& node : program_.nodes) lower(node);
    make_outputs();
    const auto lines = obligations(program_).text();
    graph_.metadata("slipring.constraints", fmt::format("{}", fmt::join(lines, "; ")));
    return graph_.model();
  }

 private:
  static size_t at(ValueId id) { return static_cast<size_t>(id); }
  const OnnxName& in(const Node& node, size_t i) const { return names_[at(node.inputs[i])]; }
  int64_t cols(ValueId id) const { return program_.type(id).dims[1].value(); }
  OnnxName node(std::string_view op, const std::vector<OnnxName>& inputs, const Attributes& attributes = {}) {
    return graph_.node(op, inputs, attributes);
  }
  OnnxName reshape(const OnnxName& x, const std::vector<int64_t>& shape) {
    return node("Reshape", {x, graph_.list(shape)});
  }
  OnnxName slice(const OnnxName& x, int64_t along, int64_t first, int64_t end) {
    return node("Slice", {x, graph_.list({first}), graph_.list({end}), graph_.list({along})});
  }
  OnnxName cast(const OnnxName& x, DType from, DType to) {
    return from == to ? x : node("Cast", {x}, Attributes().set("to", int64_t{onnx_type(to)}));
  }

  // ---- inputs, dimensions, outputs

  void make_inputs() {
    OnnxName tokens;
    for (const Node& step : program_.nodes) {
      if (step.op == OpKind::token_ids && tokens.empty()) {
        tokens = graph_.input("token_ids", DType::I64, {dim(query_len_dim())});
      } else if (step.op == OpKind::input_embeddings && tokens.empty()) {
        tokens = graph_.input("inputs_embeds", DType::F32, dims(program_.type(step.output)));
      }
    }
    tokens_ = tokens;
    query_len_.emplace(length(tokens));
    for (const ProgramState& state : program_.states) {
      for (const char part : {'k', 'v'}) {
        graph_.input(state_input(state, part), state.layout.dtype, dims(program_.type(state.initial)));
      }
      kv_[at(state.initial)] = {state_input(state, 'k'), state_input(state, 'v'), 0, {}};
    }
    const OnnxName offset = offset_input(program_);
    if (offset == "past") graph_.input(offset, DType::F32, {dim(offset_dim()), {.value = 0, .name = {}}});
    if (!offset.empty()) offset_.emplace(length(offset));
  }

  /// First dimension of an input, as an int64 scalar: the only way in for an integer that is not a constant.
  OnnxInt length(const OnnxName& input) {
    return {graph_, node("Gather", {node("Shape", {input}), graph_.scalar(int64_t{0})}, axis(0))};
  }
  const OnnxInt& query_len() const { return *query_len_; }
  const OnnxInt& offset() const {
    if (offset_) return *offset_;
    throw Error(ErrorCode::unsupported, {.where = "ONNX export of " + program_.name,
                                         .expected = "a state that tells positions",
                                         .got = "none",
                                         .advice = {}});
  }

  OnnxInt lower(const SymInt& x) {
    switch (x.kind()) {
      case SymInt::Kind::constant:
        return x.value();
      case SymInt::Kind::dimension:
        return x.same_expression(query_len_dim()) ? query_len() : offset();
      case SymInt::Kind::add:
        return lower(x.lhs()) + lower(x.rhs());
      case SymInt::Kind::sub:
        return lower(x.lhs()) - lower(x.rhs());
      case SymInt::Kind::mul:
        return lower(x.lhs()) * lower(x.rhs());
      case SymInt::Kind::floor_div:
        return lower(x.lhs()) / lower(x.rhs());
      case SymInt::Kind::mod:
        return lower(x.lhs()) % lower(x.rhs());
      case SymInt::Kind::min:
        return min(lower(x.lhs()), lower(x.rhs()));
      case SymInt::Kind::max:
        return max(lower(x.lhs()), lower(x.rhs()));
    }
    return 0;
  }

  void make_outputs() {
    for (const ProgramOutput& output : program_.outputs) {
      graph_.node("Identity", {names_[at(output.value)]}, {}, output.name);
      graph_.output(output.name, DType::F32, dims(program_.type(output.value)));
    }
    for (const ProgramState& state : program_.states) {
      if (state.final == state.initial) continue;
      for (const char part : {'k', 'v'}) {
        graph_.output(state_output(state, part), state.layout.dtype, dims(program_.type(state.final)));
      }
    }
  }

  // ---- weights

  OnnxName part(const std::string& name) {
    const auto found = places_.find(name);
    if (found == places_.end()) {
      throw Error(ErrorCode::internal, {.where = "ONNX export of " + program_.name,
                                        .expected = "a place for weight " + name,
                                        .got = "none",
                                        .advice = {}});
    }
    const WeightPlace& place = found->second;
    return graph_.weight(name, place.dtype, place.dims, place.data);
  }
  /// As float32 in the graph.
  OnnxName plain(const std::string& name) {
    OnnxName& known = plain_[name];
    if (known.empty()) known = cast(part(name), places_.at(name).dtype, DType::F32);
    return known;
  }

  // ---- ops

  void lower(const Node& step) {
    switch (step.op) {
      case OpKind::token_ids:
      case OpKind::input_embeddings:
        return set(step, tokens_);
      case OpKind::embedding:
        return embedding(step);
      case OpKind::linear:
        return linear(step);
      case OpKind::norm:
        return norm(step);
      case OpKind::rope:
        return rope(step);
      case OpKind::gated:
        return set(step, node("Mul", {activation(step.get<GatedUse>().activation, in(step, 0)), in(step, 1)}));
      case OpKind::sigmoid_gate:
        return set(step, node("Mul", {in(step, 0), node("Sigmoid", {in(step, 1)})}));
      case OpKind::add:
        return set(step, node("Add", {in(step, 0), in(step, 1)}));
      case OpKind::scale:
        return set(step, node("Mul", {in(step, 0), graph_.scalar(step.get<FactorUse>().factor)}));
      case OpKind::softcap:
        return set(step, softcap(in(step, 0), step.get<FactorUse>().factor));
      case OpKind::columns: {
        const auto& use = step.get<ColumnsUse>();
        return set(step, slice(in(step, 0), 1, use.first, use.first + use.count));
      }
      case OpKind::logit_rows: {
        constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
        const LogitRows rows = step.get<LogitRowsUse>().rows;
        if (rows == LogitRows::all) return set(step, in(step, 0));
        return set(step, slice(in(step, 0), 0, rows == LogitRows::last ? -1 : 0, rows == LogitRows::last ? kEnd : 0));
      }
      case OpKind::concat:
        return concat(step);
      case OpKind::write:
        return write(step);
      case OpKind::read:
        return read(step);
      case OpKind::attention:
        return attention(step);
      case OpKind::moe:
        return program_.check_writable();
    }
  }
  void set(const Node& step, OnnxName name) { names_[at(step.output)] = std::move(name); }

  const Constant& constant(int32_t index) const { return program_.constants[static_cast<size_t>(index)]; }

  void embedding(const Node& step) {
    const std::string& name = constant(step.get<WeightUse>().constant).name;
    // Rows are looked up in the table's own type, and only they become float32.
    set(step, cast(node("Gather", {part(name), in(step, 0)}, axis(0)), places_.at(name).dtype, DType::F32));
  }

  void linear(const Node& step) {
    const Constant& weight = constant(step.get<WeightUse>().constant);
    const Linear& map = program_.linear(step.get<WeightUse>().constant);
    if (exports_as_blocks(program_, weight)) {
      graph_.uses_domain("com.microsoft", 1);
      // accuracy_level 1: the products are float32, the activations are not quantised.
      OnnxName y =
          graph_.node("MatMulNBits", {in(step, 0), part(weight.name + ".blocks"), part(weight.name + ".scales")},
                      Attributes()
                          .set("K", map.in_features())
                          .set("N", map.out_features())
                          .set("bits", map.matrix.dtype() == DType::Q4_0 ? int64_t{4} : int64_t{8})
                          .set("block_size", int64_t{32})
                          .set("accuracy_level", int64_t{1}),
                      {}, "com.microsoft");
      if (!map.bias.empty()) y = node("Add", {y, part(weight.name + ".bias")});
      return set(step, y);
    }
    std::vector<OnnxName> inputs{in(step, 0), plain(weight.name)};
    if (!map.bias.empty()) inputs.push_back(part(weight.name + ".bias"));
    set(step, node("Gemm", inputs, Attributes().set("transB", int64_t{1})));
  }

  OnnxName mean(const OnnxName& x) {
    return node("ReduceMean", {x}, Attributes().set("axes", std::vector<int64_t>{-1}).set("keepdims", int64_t{1}));
  }

  void norm(const Node& step) {
    const auto& use = step.get<NormUse>();
    const int64_t width = cols(step.output);
    const bool groups = use.size != width;
    OnnxName x = groups ? reshape(in(step, 0), {-1, width / use.size, use.size}) : in(step, 0);
    if (use.kind == NormKind::layer) x = node("Sub", {x, mean(x)});
    const OnnxName square = mean(node("Mul", {x, x}));
    OnnxName y = node("Div", {x, node("Sqrt", {node("Add", {square, graph_.scalar(use.eps)})})});
    if (use.constant >= 0) y = node("Mul", {y, part(constant(use.constant).name)});
    set(step, groups ? reshape(y, {-1, width}) : y);
  }

  struct Angles {
    OnnxName cos, sin;  ///< [query_len, 1, rotary_dim / 2]
  };

  const Angles& angles(int32_t index) {
    Angles& known = angles_[index];
    if (!known.cos.empty()) return known;
    const Rope& rope = program_.ropes[static_cast<size_t>(index)];
    const auto half = static_cast<int64_t>(rope.inverse_frequencies.size());
    const OnnxName positions = cast(query_positions(), DType::I64, DType::F32);
    const OnnxName angle = node("Mul", {node("Unsqueeze", {positions, graph_.list({2})}),
                                        graph_.floats(rope.inverse_frequencies, {1, 1, half})});
    const auto scaled = [&](const OnnxName& x) {
      return rope.magnitude == 1.0F ? x : node("Mul", {x, graph_.scalar(rope.magnitude)});
    };
    known = {scaled(node("Cos", {angle})), scaled(node("Sin", {angle}))};
    return known;
  }

  void rope(const Node& step) {
    const auto& use = step.get<RopeUse>();
    const Rope& rope = program_.ropes[static_cast<size_t>(use.rope)];
    const Angles angle = angles(use.rope);
    const int64_t width = cols(step.output);
    const int64_t heads = width / use.head_dim;
    const int64_t rotary = rope.rotary_dim();
    const int64_t half = rotary / 2;
    const OnnxName x = reshape(in(step, 0), {-1, heads, use.head_dim});
    OnnxName a, b;
    if (rope.layout == RopeLayout::halves) {
      a = slice(x, 2, 0, half);
      b = slice(x, 2, half, rotary);
    } else {
      const OnnxName pairs = reshape(slice(x, 2, 0, rotary), {-1, heads, half, 2});
      a = node("Gather", {pairs, graph_.scalar(int64_t{0})}, axis(3));
      b = node("Gather", {pairs, graph_.scalar(int64_t{1})}, axis(3));
    }
    OnnxName first = node("Sub", {node("Mul", {a, angle.cos}), node("Mul", {b, angle.sin})});
    OnnxName second = node("Add", {node("Mul", {b, angle.cos}), node("Mul", {a, angle.sin})});
    OnnxName rotated;
    if (rope.layout == RopeLayout::halves) {
      rotated = node("Concat", {first, second}, axis(2));
    } else {
      first = node("Unsqueeze", {first, graph_.list({3})});
      second = node("Unsqueeze", {second, graph_.list({3})});
      rotated = reshape(node("Concat", {first, second}, axis(3)), {-1, heads, rotary});
    }
    if (rotary < use.head_dim) rotated = node("Concat", {rotated, slice(x, 2, rotary, use.head_dim)}, axis(2));
    set(step, reshape(rotated, {-1, width}));
  }

  OnnxName activation(Activation kind, const OnnxName& x) {
    if (kind == Activation::silu) return node("Mul", {x, node("Sigmoid", {x})});
    OnnxName inner;
    if (kind == Activation::gelu_erf) {
      inner = node("Erf", {node("Mul", {x, graph_.scalar(static_cast<float>(std::sqrt(0.5)))})});
    } else {
      const OnnxName cube = node("Mul", {node("Mul", {x, x}), x});
      const OnnxName sum = node("Add", {x, node("Mul", {cube, graph_.scalar(0.044715F)})});
      constexpr double kTwoOverPi = 0.63661977236758134308;
      inner = node("Tanh", {node("Mul", {sum, graph_.scalar(static_cast<float>(std::sqrt(kTwoOverPi)))})});
    }
    const OnnxName weight = node("Add", {inner, graph_.scalar(1.0F)});
    return node("Mul", {node("Mul", {x, graph_.scalar(0.5F)}), weight});
  }

  OnnxName softcap(const OnnxName& x, float cap) {
    return node("Mul", {node("Tanh", {node("Div", {x, graph_.scalar(cap)})}), graph_.scalar(cap)});
  }

  // ---- caches

  /// first, first + 1, ... first + count - 1, as [count] int64.
  OnnxName range(const OnnxInt& first, const OnnxInt& count) {
    return node("Range", {first.in(graph_), (first + count).in(graph_), graph_.scalar(int64_t{1})});
  }
  /// Positions of the step's tokens, [query_len, 1].
  const OnnxName& query_positions() {
    if (query_positions_.empty()) {
      query_positions_ = node("Unsqueeze", {range(offset(), query_len()), graph_.list({1})});
    }
    return query_positions_;
  }
  /// The step's own keys (or values) as the cache holds them: rounded before anyone sees them.
  OnnxName rounded(ValueId id, const ProgramState& state) {
    OnnxName& known = rounded_[{id, state.layout.n_kv_heads}];
    if (known.empty()) {
      const OnnxName shaped = reshape(names_[at(id)], {-1, state.layout.n_kv_heads, state.layout.head_dim});
      known = cast(shaped, DType::F32, state.layout.dtype);
    }
    return known;
  }
  /// The row of positions that a layout of keys holds; the formulas are those of ring.h.
  const OnnxInt& positions(const std::string& layout, const ProgramState& state) {
    const auto found = positions_.find(layout);
    if (found != positions_.end()) return found->second;
    OnnxName row;
    if (!state.is_ring()) {
      row = range(0, offset() + query_len());
    } else {
      std::vector<int64_t> numbers(static_cast<size_t>(state.capacity));
      for (int64_t i = 0; i < state.capacity; ++i) numbers[static_cast<size_t>(i)] = i;
      const OnnxInt slots(graph_, graph_.list(numbers));
      const OnnxInt capacity = state.capacity;
      if (layout.starts_with("ring")) {
        row = ring::position_after_write<OnnxInt>(slots, offset(), query_len(), capacity).in(graph_);
      } else {
        const OnnxName before = ring::position_before_write<OnnxInt>(slots, offset(), capacity).in(graph_);
        row = node("Concat", {before, range(offset(), query_len())}, axis(0));
      }
    }
    return positions_.emplace(layout, OnnxInt(graph_, node("Unsqueeze", {row, graph_.list({0})}))).first->second;
  }

  void concat(const Node& step) {
    const ProgramState& state = program_.state_of(step.inputs[0]);
    const OnnxKV& past = kv_[at(step.inputs[0])];
    const std::string layout = state.is_ring() ? fmt::format("concat {}", state.capacity) : "full";
    kv_[at(step.output)] = {node("Concat", {past.k, rounded(step.inputs[1], state)}, axis(0)),
                            node("Concat", {past.v, rounded(step.inputs[2], state)}, axis(0)), positions(layout, state),
                            layout};
  }

  void write(const Node& step) {
    const ProgramState& state = program_.state_of(step.inputs[0]);
    const OnnxKV& past = kv_[at(step.inputs[0])];
    const auto next = [&](const OnnxName& from, ValueId values, char which) {
      const OnnxName output = state_output(state, which);
      if (!state.is_ring()) return graph_.node("Concat", {from, rounded(values, state)}, axis(0), output);
      return graph_.node("ScatterND", {from, write_index(step, state), rounded(values, state)}, {}, output);
    };
    OnnxKV result{next(past.k, step.inputs[1], 'k'), next(past.v, step.inputs[2], 'v'), 0, {}};
    kv_[at(step.output)] = std::move(result);
  }
  /// Slots of the step's tokens [query_len, 1]: begin, begin + 1, ...; past the ring's end ScatterND refuses.
  const OnnxName& write_index(const Node& step, const ProgramState& state) {
    OnnxName& known = write_index_[state.capacity];
    if (known.empty()) {
      const OnnxName slots = range(lower(step.get<WriteUse>().begin), query_len());
      known = node("Unsqueeze", {slots, graph_.list({1})});
    }
    return known;
  }

  void read(const Node& step) {
    const ProgramState& state = program_.state_of(step.inputs[0]);
    const std::string layout = state.is_ring() ? fmt::format("ring {}", state.capacity) : "full";
    const OnnxKV& now = kv_[at(step.inputs[0])];
    kv_[at(step.output)] = {now.k, now.v, positions(layout, state), layout};
  }

  // ---- attention

  /// [query_len, keys] bool; null name where every key is seen.
  const OnnxName& mask(const OnnxKV& kv, const AttentionUse& use) {
    OnnxName& known = masks_[fmt::format("{} window {} {}", kv.layout, use.window, use.both_ways)];
    if (!known.empty()) return known;
    const OnnxInt query(graph_, query_positions());
    const OnnxInt& key = kv.positions;
    if (use.both_ways) {  // a distance, on either side
      known = ((key >= OnnxInt(0)) & (key - query <= OnnxInt(use.window)) & (query - key <= OnnxInt(use.window))).name;
    } else if (use.window > 0) {
      known = ring::sees<OnnxInt>(query, key, use.window).name;
    } else {
      known = (key <= query).name;
    }
    return known;
  }

  void attention(const Node& step) {
    const auto& use = step.get<AttentionUse>();
    const OnnxKV& kv = kv_[at(step.inputs[1])];
    const KVLayout& layout = program_.state_of(step.inputs[1]).layout;
    const int64_t kv_heads = layout.n_kv_heads;
    const int64_t group = use.n_heads / kv_heads;
    const auto permuted = [&](const OnnxName& x, std::vector<int64_t> order) {
      return node("Transpose", {x}, Attributes().set("perm", std::move(order)));
    };
    // q [kv_heads, group, query_len, head_dim], k and v [kv_heads, 1, keys, head_dim]: each group shares its keys.
    const OnnxName q = permuted(reshape(in(step, 0), {-1, kv_heads, group, layout.head_dim}), {1, 2, 0, 3});
    const OnnxName one = graph_.list({1});
    const OnnxName k = node("Unsqueeze", {permuted(cast(kv.k, layout.dtype, DType::F32), {1, 2, 0}), one});
    const OnnxName v = node("Unsqueeze", {permuted(cast(kv.v, layout.dtype, DType::F32), {1, 0, 2}), one});
    OnnxName scores = node("Mul", {node("MatMul", {q, k}), graph_.scalar(use.scale)});
    if (use.softcap > 0.0F) scores = softcap(scores, use.softcap);
    scores = node("Where", {mask(kv, use), scores, graph_.scalar(-std::numeric_limits<float>::infinity())});
    OnnxName weights;
    if (use.sinks < 0) {
      weights = node("Softmax", {scores}, axis(-1));
    } else {
      // A logit that joins the denominator only: one more column, cut off again.
      const OnnxName sinks = reshape(part(constant(use.sinks).name), {kv_heads, group, 1, 1});
      const OnnxName rows = slice(node("Shape", {scores}), 0, 0, 3);
      const OnnxName column = node("Expand", {sinks, node("Concat", {rows, graph_.list({1})}, axis(0))});
      const OnnxName all = node("Softmax", {node("Concat", {scores, column}, axis(3))}, axis(-1));
      weights = slice(all, 3, 0, -1);
    }
    const OnnxName out = permuted(node("MatMul", {weights, v}), {2, 0, 1, 3});
    set(step, reshape(out, {-1, int64_t{use.n_heads} * layout.head_dim}));
  }

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
  std::map<int32_t, Angles> angles_;
  std::map<std::pair<ValueId, int>, OnnxName> rounded_;
  std::map<std::string, OnnxInt> positions_;
  std::map<int64_t, OnnxName> write_index_;  // by capacity
  std::map<std::string, OnnxName> masks_;
};

}  // namespace

bool exports_as_blocks(const Program& program, const Constant& constant) {
  const auto* linear = std::get_if<std::shared_ptr<const Linear>>(&constant.weight);
  if (linear == nullptr) return false;
  const DType dtype = (*linear)->matrix.dtype();
  if (dtype != DType::Q8_0 && dtype != DType::Q4_0) return false;
  for (const Node& node : program.nodes) {
    if (node.op == OpKind::embedding && &program.linear(node.get<WeightUse>().constant) == linear->get()) return false;
  }
  return true;
}

std::vector<WeightPart> weight_parts(const Program& program, const Constant& constant) {
  if (const auto* norm = std::get_if<std::shared_ptr<const Norm>>(&constant.weight)) {
    return {{.name = constant.name, .dtype = DType::F32, .dims = {(*norm)->weight.elements()}}};
  }
  if (const auto* tensor = std::get_if<Tensor>(&constant.weight)) {
    return {{.name = constant.name, .dtype = DType::F32, .dims = {tensor->elements()}}};
  }
  const Linear& linear = *std::get<std::shared_ptr<const Linear>>(constant.weight);
  const int64_t rows = linear.out_features();
  const int64_t cols = linear.in_features();
  std::vector<WeightPart> parts;
  if (exports_as_blocks(program, constant)) {
    const int64_t bytes = linear.matrix.dtype() == DType::Q4_0 ? 16 : 32;
    parts.push_back({.name = constant.name + ".blocks", .dtype = DType::U8, .dims = {rows, cols / 32, bytes}});
    parts.push_back({.name = constant.name + ".scales", .dtype = DType::F32, .dims = {rows, cols / 32}});
  } else {
    const DType dtype = is_quantised(linear.matrix.dtype()) ? DType::F32 : linear.matrix.dtype();
    parts.push_back({.name = constant.name, .dtype = dtype, .dims = {rows, cols}});
  }
  if (!linear.bias.empty()) parts.push_back({.name = constant.name + ".bias", .dtype = DType::F32, .dims = {rows}});
  return parts;
}

onnx::ModelProto to_onnx(const Program& program, const WeightPlaces& places) {
  verify(program);
  onnx::ModelProto model = Lowering(program, places).run();
  if (const auto found = write_index_problems(model); !found.empty()) {
    throw Error(ErrorCode::internal, {.where = "ONNX export of " + program.name,
                                      .expected = "write indices from shapes and constants only",
                                      .got = fmt::format("{}", fmt::join(found, "; ")),
                                      .advice = {}});
  }
  return model;
}

}  // namespace slipring
