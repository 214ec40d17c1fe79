// A mixture of experts in standard ONNX operators: each expert sees only the rows that chose it, perhaps none.
#include "program/onnx_lowering.h"

namespace slipring {

/// One expert's answer for the rows of x: down((up' + 1) * gate' * sigmoid(alpha * gate')).
OnnxName OnnxLowering::expert(const OnnxName& x, const MixtureUse& use, int64_t index) {
  const auto [gate_map, up_map, down_map] = use.expert(index);
  const OnnxName most = graph_.scalar(use.limit);
  const OnnxName gate = node("Min", {linear(x, gate_map), most});
  const OnnxName up = node("Clip", {linear(x, up_map), graph_.scalar(-use.limit), most});
  const OnnxName gated = node("Mul", {gate, node("Sigmoid", {node("Mul", {gate, graph_.scalar(use.alpha)})})});
  return linear(node("Mul", {gated, node("Add", {up, graph_.scalar(1.0F)})}), down_map);
}

void OnnxLowering::mixture(const Node& step) {
  const auto& use = step.get<MixtureUse>();
  const OnnxName& x = in(step, 0);
  const OnnxName zero = graph_.list({0});
  const OnnxName per_token = graph_.scalar(int64_t{use.per_token});

  // A place is one choice of one row: row * per_token + rank.
  const auto best = graph_.nodes("TopK", {linear(x, use.router()), graph_.list({use.per_token})}, axis(-1), 2);
  const OnnxName weights = node("Softmax", {best[0]}, axis(-1));
  const OnnxName chosen = reshape(best[1], {-1});
  std::vector<OnnxName> places;
  std::vector<OnnxName> answers;
  for (int64_t i = 0; i < use.experts; ++i) {
    places.push_back(reshape(node("NonZero", {node("Equal", {chosen, graph_.scalar(i)})}), {-1}));
    const OnnxName rows = node("Div", {places.back(), per_token});
    answers.push_back(expert(node("Gather", {x, rows}, axis(0)), use, i));
  }

  // The answers stand in the order of the experts; `order` says where the answer for each place is.
  const OnnxName all_places = node("Concat", places, axis(0));
  const OnnxName count = node("Squeeze", {node("Shape", {chosen}), zero});
  const OnnxName numbers = node("Range", {graph_.scalar(int64_t{0}), count, graph_.scalar(int64_t{1})});
  const OnnxName order = node("ScatterElements", {numbers, all_places, numbers}, axis(0));
  const OnnxName by_place = node("Gather", {node("Concat", answers, axis(0)), order}, axis(0));
  const OnnxName by_rank = reshape(by_place, {-1, use.per_token, cols(step.output)});
  const OnnxName weighted = node("Mul", {by_rank, node("Unsqueeze", {weights, graph_.list({2})})});
  set(step, node("ReduceSum", {weighted, graph_.list({1})}, Attributes().set("keepdims", int64_t{0})));
}

}  // namespace slipring
