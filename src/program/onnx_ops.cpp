// Norms, rotary embeddings and activations in standard ONNX operators.
#include <cmath>
#include <limits>

#include "program/onnx_lowering.h"

namespace slipring {

OnnxName OnnxLowering::mean(const OnnxName& x) {
  return node("ReduceMean", {x}, Attributes().set("axes", std::vector<int64_t>{-1}).set("keepdims", int64_t{1}));
}

void OnnxLowering::norm(const Node& step) {
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

const OnnxLowering::Angles& OnnxLowering::angles(int32_t index) {
  Angles& known = angles_[index];
  if (!known.cos.empty()) return known;
  const Rope& rope = program_.ropes[static_cast<size_t>(index)];
  const auto half = static_cast<int64_t>(rope.inverse_frequencies.size());
  const OnnxName positions = cast(query_positions(), DType::I64, DType::F32);
  const OnnxName angle = node(
      "Mul", {node("Unsqueeze", {positions, graph_.list({2})}), graph_.floats(rope.inverse_frequencies, {1, 1, half})});
  const auto scaled = [&](const OnnxName& x) {
    return rope.magnitude == 1.0F ? x : node("Mul", {x, graph_.scalar(rope.magnitude)});
  };
  known = {scaled(node("Cos", {angle})), scaled(node("Sin", {angle}))};
  return known;
}

void OnnxLowering::rope(const Node& step) {
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

OnnxName OnnxLowering::activation(Activation kind, const OnnxName& x) {
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

OnnxName OnnxLowering::softcap(const OnnxName& x, float cap) {
  return node("Mul", {node("Tanh", {node("Div", {x, graph_.scalar(cap)})}), graph_.scalar(cap)});
}

void OnnxLowering::logit_rows(const Node& step) {
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  const LogitRows rows = step.get<LogitRowsUse>().rows;
  if (rows == LogitRows::all) return set(step, in(step, 0));
  set(step, slice(in(step, 0), 0, rows == LogitRows::last ? -1 : 0, rows == LogitRows::last ? kEnd : 0));
}

}  // namespace slipring
