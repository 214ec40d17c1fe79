// Caches, masks and attention in standard ONNX operators. Positions and masks come from the formulas of ring.h.
#include <fmt/format.h>
#include <limits>

#include "program/onnx_lowering.h"

namespace slipring {

// Positions of the step's tokens, [query_len, 1].
const OnnxName& OnnxLowering::query_positions() {
  if (query_positions_.empty()) {
    query_positions_ = node("Unsqueeze", {range(offset(), query_len()), graph_.list({1})});
  }
  return query_positions_;
}

// The step's own keys (or values) as the cache holds them: rounded before anyone sees them.
OnnxName OnnxLowering::rounded(ValueId id, const ProgramState& state) {
  OnnxName& known = rounded_[{id, state.layout.n_kv_heads}];
  if (known.empty()) {
    const OnnxName shaped = reshape(names_[at(id)], {-1, state.layout.n_kv_heads, state.layout.head_dim});
    known = cast(shaped, DType::F32, state.layout.dtype);
  }
  return known;
}

// The row of positions that a layout of keys holds; the formulas are those of ring.h.
const OnnxInt& OnnxLowering::positions(const std::string& layout, const ProgramState& state) {
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

void OnnxLowering::concat(const Node& step) {
  const ProgramState& state = program_.state_of(step.inputs[0]);
  const OnnxKV& past = kv_[at(step.inputs[0])];
  const std::string layout = state.is_ring() ? fmt::format("concat {}", state.capacity) : "full";
  kv_[at(step.output)] = {node("Concat", {past.k, rounded(step.inputs[1], state)}, axis(0)),
                          node("Concat", {past.v, rounded(step.inputs[2], state)}, axis(0)), positions(layout, state),
                          layout};
}

void OnnxLowering::write(const Node& step) {
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

// Slots of the step's tokens [query_len, 1]: begin, begin + 1, ...; past the ring's end ScatterND refuses.
const OnnxName& OnnxLowering::write_index(const Node& step, const ProgramState& state) {
  OnnxName& known = write_index_[state.capacity];
  if (known.empty()) {
    const OnnxName slots = range(integer(step.get<WriteUse>().begin), query_len());
    known = node("Unsqueeze", {slots, graph_.list({1})});
  }
  return known;
}

void OnnxLowering::read(const Node& step) {
  const ProgramState& state = program_.state_of(step.inputs[0]);
  const std::string layout = state.is_ring() ? fmt::format("ring {}", state.capacity) : "full";
  const OnnxKV& now = kv_[at(step.inputs[0])];
  kv_[at(step.output)] = {now.k, now.v, positions(layout, state), layout};
}

// [query_len, keys] bool; null name where every key is seen.
const OnnxName& OnnxLowering::mask(const OnnxKV& kv, const AttentionUse& use) {
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

void OnnxLowering::attention(const Node& step) {
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

}  // namespace slipring
