#include "program/replay.h"

#include <algorithm>
#include <limits>

namespace slipring {
namespace {

constexpr size_t kNever = std::numeric_limits<size_t>::max();

size_t at(ValueId id) noexcept {
  return static_cast<size_t>(id);
}

}  // namespace

Replay::Replay(const Program& program, Ops& ops)
    : program_(program),
      ops_(ops),
      last_use_(program.values.size(), 0),
      values_(program.values.size()),
      kv_(program.values.size()),
      taps_(program.values.size(), -1),
      read_(program.values.size(), false) {
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    for (const ValueId input : program.nodes[i].inputs) last_use_[at(input)] = i;
    if (program.nodes[i].op == OpKind::read) read_[at(program.nodes[i].inputs[0])] = true;
  }
  for (const ProgramOutput& output : program.outputs) {
    last_use_[at(output.value)] = kNever;
    for (const ProgramState& state : program.states) {
      if (output.name == tap_name(state.layer)) taps_[at(output.value)] = state.layer;
    }
  }
  if (program.hidden >= 0) last_use_[at(program.hidden)] = kNever;
}

void Replay::skip_past(ValueId value) {
  while (next_ < program_.nodes.size() && program_.nodes[next_++].output != value) {
  }
}

void Replay::run_to(ValueId value) {
  while (next_ < program_.nodes.size() && !values_[at(value)]) {
    if (program_.nodes[next_].op == OpKind::linear) {
      next_ += run_linears(next_);
    } else {
      run_node(next_++);
    }
  }
}

void Replay::run_all() {
  while (next_ < program_.nodes.size()) {
    if (program_.nodes[next_].op == OpKind::linear) {
      next_ += run_linears(next_);
    } else {
      run_node(next_++);
    }
  }
}

void Replay::tap(ValueId id) {
  if (taps_[at(id)] >= 0) ops_.tap(taps_[at(id)], values_[at(id)]);
}

Value Replay::take(const Node& node, size_t input, size_t index) {
  const ValueId id = node.inputs[input];
  if (last_use_[at(id)] != index || std::count(node.inputs.begin(), node.inputs.end(), id) > 1) return values_[at(id)];
  return std::move(values_[at(id)]);
}

size_t Replay::run_linears(size_t first) {
  const ValueId x = program_.nodes[first].inputs[0];
  std::vector<const Linear*> maps;
  size_t end = first;
  for (; end < program_.nodes.size(); ++end) {
    const Node& node = program_.nodes[end];
    if (node.op != OpKind::linear || node.inputs[0] != x) break;
    maps.push_back(&program_.linear(node.get<WeightUse>().constant));
  }
  auto results = ops_.linear(values_[at(x)], maps);
  for (size_t i = first; i < end; ++i) {
    values_[at(program_.nodes[i].output)] = std::move(results[i - first]);
    tap(program_.nodes[i].output);
  }
  if (last_use_[at(x)] < end) values_[at(x)] = {};
  return end - first;
}

void Replay::run_node(size_t index) {
  const Node& node = program_.nodes[index];
  if (values_[at(node.output)]) return;  // set()
  const auto input = [&](size_t i) -> const Value& { return values_[at(node.inputs[i])]; };
  Value result;
  switch (node.op) {
    case OpKind::token_ids:
      result = ops_.token_ids();
      break;
    case OpKind::input_embeddings:
      result = ops_.input_embeddings();
      break;
    case OpKind::embedding:
      result = ops_.embedding(input(0), program_.linear(node.get<WeightUse>().constant));
      break;
    case OpKind::linear:  // run_linears()
      break;
    case OpKind::norm: {
      const auto& use = node.get<NormUse>();
      Norm norm{.name = {}, .kind = use.kind, .size = use.size, .eps = use.eps, .weight = {}};
      if (use.constant >= 0) {
        norm.weight = std::get<std::shared_ptr<const Norm>>(program_.constants[at(use.constant)].weight)->weight;
      }
      result = ops_.norm(take(node, 0, index), norm);
      break;
    }
    case OpKind::rope:
      result =
          ops_.rope(take(node, 0, index), program_.ropes[at(node.get<RopeUse>().rope)], node.get<RopeUse>().head_dim);
      break;
    case OpKind::gated:
      result = ops_.gated(node.get<GatedUse>().activation, take(node, 0, index), input(1));
      break;
    case OpKind::sigmoid_gate:
      result = ops_.sigmoid_gate(take(node, 0, index), input(1));
      break;
    case OpKind::add:
      result = ops_.add(take(node, 0, index), input(1));
      break;
    case OpKind::scale:
      result = ops_.scale(take(node, 0, index), node.get<FactorUse>().factor);
      break;
    case OpKind::softcap:
      result = ops_.softcap(take(node, 0, index), node.get<FactorUse>().factor);
      break;
    case OpKind::columns:
      result = ops_.columns(input(0), node.get<ColumnsUse>().first, node.get<ColumnsUse>().count);
      break;
    case OpKind::moe:
      result = ops_.moe(input(0), *node.get<MixtureUse>().mixture);
      break;
    case OpKind::logit_rows:
      result = ops_.logit_rows(input(0));
      break;
    case OpKind::concat:
      kv_[at(node.output)] = ops_.fetch_and_concat(program_.state_of(node.inputs[0]).layer, input(1), input(2));
      break;
    case OpKind::write: {
      const int layer = program_.state_of(node.inputs[0]).layer;
      if (!read_[at(node.output)]) {
        ops_.update(layer, input(1), input(2));
      } else if (ops_.mode() == StepMode::main) {
        kv_[at(node.output)] = ops_.update_and_fetch(layer, input(1), input(2));
      } else {
        // A trimmed main. The verifier lets no ring come here, and a full cache reads the same either way; this one
        // leaves the write to the step's commit.
        kv_[at(node.output)] = ops_.fetch_and_concat(layer, input(1), input(2));
        ops_.update(layer, input(1), input(2));
      }
      break;
    }
    case OpKind::read:
      kv_[at(node.output)] = kv_[at(node.inputs[0])];
      break;
    case OpKind::attention: {
      const auto& use = node.get<AttentionUse>();
      const KVLayout& layout = program_.state_of(node.inputs[1]).layout;
      AttentionSpec spec{.n_heads = use.n_heads,
                         .n_kv_heads = layout.n_kv_heads,
                         .head_dim = layout.head_dim,
                         .scale = use.scale,
                         .softcap = use.softcap,
                         .window = use.window,
                         .sinks = {},
                         .both_ways = use.both_ways};
      if (use.sinks >= 0) spec.sinks = std::get<Tensor>(program_.constants[at(use.sinks)].weight);
      result = ops_.attention(input(0), kv_[at(node.inputs[1])], spec);
      break;
    }
  }
  if (result) values_[at(node.output)] = std::move(result);
  tap(node.output);
  for (const ValueId id : node.inputs) {
    if (last_use_[at(id)] == index) values_[at(id)] = {};
  }
}

}  // namespace slipring
