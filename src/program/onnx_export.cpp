#include "program/onnx_export.h"

#include <fmt/format.h>

#include <slipring/error.h>

#include "program/onnx_lowering.h"
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

std::vector<OnnxGraph::Dim> onnx_dims(const Program& program, const ValueType& type) {
  const bool single_token = obligations(program).single_token;
  std::vector<OnnxGraph::Dim> result;
  for (const SymInt& size : type.dims) {
    if (size.is_constant()) {
      result.push_back({.value = size.value(), .name = {}});
    } else if (single_token && size.same_expression(query_len_dim())) {
      result.push_back({.value = 1, .name = {}});
    } else {
      const bool both = size.same_expression(offset_dim() + query_len_dim());
      result.push_back({.value = 0, .name = both ? "seq_len" : size.to_string()});
    }
  }
  return result;
}

onnx::ModelProto OnnxLowering::run() {
  make_inputs();
  for (const Node& node : program_.nodes) lower(node);
  make_outputs();
  const auto lines = obligations(program_).text();
  graph_.metadata("slipring.constraints", fmt::format("{}", fmt::join(lines, "; ")));
  return graph_.model();
}

OnnxName OnnxLowering::reshape(const OnnxName& x, const std::vector<int64_t>& shape) {
  return node("Reshape", {x, graph_.list(shape)});
}

OnnxName OnnxLowering::slice(const OnnxName& x, int64_t along, int64_t first, int64_t end) {
  return node("Slice", {x, graph_.list({first}), graph_.list({end}), graph_.list({along})});
}

OnnxName OnnxLowering::cast(const OnnxName& x, DType from, DType to) {
  return from == to ? x : node("Cast", {x}, Attributes().set("to", int64_t{onnx_type(to)}));
}

// First dimension of an input, as an int64 scalar: the only way in for an integer that is not a constant.
OnnxInt OnnxLowering::length(const OnnxName& input) {
  return {graph_, node("Gather", {node("Shape", {input}), graph_.scalar(int64_t{0})}, axis(0))};
}

const OnnxInt& OnnxLowering::offset() const {
  if (offset_) return *offset_;
  throw Error(ErrorCode::unsupported, {.where = "ONNX export of " + program_.name,
                                       .expected = "a state that tells positions",
                                       .got = "none",
                                       .advice = {}});
}

OnnxInt OnnxLowering::integer(const SymInt& x) {
  switch (x.kind()) {
    case SymInt::Kind::constant:
      return x.value();
    case SymInt::Kind::dimension:
      return x.same_expression(query_len_dim()) ? query_len() : offset();
    case SymInt::Kind::add:
      return integer(x.lhs()) + integer(x.rhs());
    case SymInt::Kind::sub:
      return integer(x.lhs()) - integer(x.rhs());
    case SymInt::Kind::mul:
      return integer(x.lhs()) * integer(x.rhs());
    case SymInt::Kind::floor_div:
      return integer(x.lhs()) / integer(x.rhs());
    case SymInt::Kind::mod:
      return integer(x.lhs()) % integer(x.rhs());
    case SymInt::Kind::min:
      return min(integer(x.lhs()), integer(x.rhs()));
    case SymInt::Kind::max:
      return max(integer(x.lhs()), integer(x.rhs()));
  }
  return 0;
}

// first, first + 1, ... first + count - 1, as [count] int64.
OnnxName OnnxLowering::range(const OnnxInt& first, const OnnxInt& count) {
  return node("Range", {first.in(graph_), (first + count).in(graph_), graph_.scalar(int64_t{1})});
}

void OnnxLowering::make_inputs() {
  OnnxName tokens;
  for (const Node& step : program_.nodes) {
    if (step.op == OpKind::token_ids && tokens.empty()) {
      tokens = graph_.input("token_ids", DType::I64, {dims(program_.type(step.output))[0]});
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
  if (offset == "past")
    graph_.input(offset, DType::F32, {{.value = 0, .name = offset_dim().to_string()}, {.value = 0, .name = {}}});
  if (!offset.empty()) offset_.emplace(length(offset));
}

void OnnxLowering::make_outputs() {
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

void OnnxLowering::lower(const Node& step) {
  switch (step.op) {
    case OpKind::token_ids:
    case OpKind::input_embeddings:
      return set(step, tokens_);
    case OpKind::embedding:
      return set(step, embedding(in(step, 0), step.get<WeightUse>().constant));
    case OpKind::linear:
      return set(step, linear(in(step, 0), step.get<WeightUse>().constant));
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
    case OpKind::logit_rows:
      return logit_rows(step);
    case OpKind::concat:
      return concat(step);
    case OpKind::write:
      return write(step);
    case OpKind::read:
      return read(step);
    case OpKind::attention:
      return attention(step);
    case OpKind::moe:
      return mixture(step);
  }
}

onnx::ModelProto to_onnx(const Program& program, const WeightPlaces& places) {
  verify(program);
  onnx::ModelProto model = OnnxLowering(program, places).run();
  if (const auto found = write_index_problems(model); !found.empty()) {
    throw Error(ErrorCode::internal, {.where = "ONNX export of " + program.name,
                                      .expected = "write indices from shapes and constants only",
                                      .got = fmt::format("{}", fmt::join(found, "; ")),
                                      .advice = {}});
  }
  return model;
}

}  // namespace slipring
