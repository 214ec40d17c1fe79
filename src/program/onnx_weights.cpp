// Weights in an ONNX graph: where they lie, and the operators that look up and multiply.
#include <fmt/format.h>

#include <slipring/error.h>

#include "program/block_format.h"
#include "program/onnx_lowering.h"

namespace slipring {

OnnxName OnnxLowering::part(const std::string& name) {
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

// As float32 in the graph.
OnnxName OnnxLowering::plain(const std::string& name) {
  OnnxName& known = plain_[name];
  if (known.empty()) known = cast(part(name), places_.at(name).dtype, DType::F32);
  return known;
}

// ---- weights in blocks: block_format.h says what the parts are

const OnnxLowering::BlockScales& OnnxLowering::block_scales(const std::string& name, const PackedMatrix& matrix) {
  BlockScales& known = block_scales_[name];
  if (!known.scale.empty()) return known;
  const BlockFormat format = *block_format(matrix.dtype());
  const int64_t rows = matrix.rows();
  const int64_t groups = format.groups(matrix.cols());
  const auto floats = [&](const char* kind) { return plain(name + kind); };
  // One number a group times one a block. These are constants, which a runtime computes once, as it loads.
  const auto product = [&](const char* group, const char* block) {
    const OnnxName parts = reshape(floats(block), {rows, groups, format.group / format.size});
    const OnnxName wide = node("Unsqueeze", {floats(group), graph_.list({2})});
    return reshape(node("Mul", {wide, parts}), {rows, format.blocks(matrix.cols())});
  };
  known.scale = format.sub_scales ? product(".d", ".s") : floats(".d");
  if (format.minima) {
    const OnnxName base = node("Mul", {known.scale, graph_.scalar(static_cast<float>(format.center))});
    known.added =
        format.sub_minima ? node("Sub", {base, product(".dmin", ".m")}) : node("Add", {base, floats(".dmin")});
  }
  return known;
}

OnnxName OnnxLowering::block_rows(const OnnxName& ids, int32_t table) {
  const std::string& name = constant(table).name;
  const PackedMatrix& matrix = program_.linear(table).matrix;
  const BlockFormat format = *block_format(matrix.dtype());
  const BlockScales& scales = block_scales(name, matrix);
  const auto rows_of = [&](const OnnxName& x) { return node("Gather", {x, ids}, axis(0)); };
  const auto one_a_block = [&](const OnnxName& x) { return node("Unsqueeze", {rows_of(x), graph_.list({2})}); };
  OnnxName elements = cast(rows_of(part(name + ".blocks")), DType::U8, DType::I32);
  if (format.bits == 4) {
    const OnnxName sixteen = graph_.int32(16);
    const OnnxName high = node("Div", {elements, sixteen});
    const OnnxName low = node("Sub", {elements, node("Mul", {high, sixteen})});
    const OnnxName last = graph_.list({3});
    const OnnxName pairs = node("Concat", {node("Unsqueeze", {low, last}), node("Unsqueeze", {high, last})}, axis(3));
    elements = reshape(pairs, {-1, format.blocks(matrix.cols()), format.size});
  }
  const OnnxName zero = graph_.scalar(static_cast<float>(format.zero()));
  OnnxName values = node("Sub", {cast(elements, DType::I32, DType::F32), zero});
  values = node("Mul", {values, one_a_block(scales.scale)});
  if (!scales.added.empty()) values = node("Add", {values, one_a_block(scales.added)});
  return reshape(values, {-1, matrix.cols()});
}

OnnxName OnnxLowering::block_linear(const OnnxName& x, int32_t map) {
  const std::string& name = constant(map).name;
  const Linear& linear = program_.linear(map);
  const BlockFormat format = *block_format(linear.matrix.dtype());
  const BlockScales& scales = block_scales(name, linear.matrix);
  graph_.uses_domain("com.microsoft", 1);
  // accuracy_level 1: the products are float32, the activations are not quantised.
  OnnxName y = graph_.node("MatMulNBits", {x, part(name + ".blocks"), scales.scale},
                           Attributes()
                               .set("K", linear.in_features())
                               .set("N", linear.out_features())
                               .set("bits", int64_t{format.bits})
                               .set("block_size", int64_t{format.size})
                               .set("accuracy_level", int64_t{1}),
                           {}, "com.microsoft");
  const OnnxName bias = linear.bias.empty() ? OnnxName() : part(name + ".bias");
  if (scales.added.empty()) return bias.empty() ? y : node("Add", {y, bias});
  // What is added to all columns of a block meets the sum of x over them.
  OnnxName& sums = block_sums_[{x, format.size}];
  if (sums.empty()) {
    const OnnxName shaped = reshape(x, {-1, format.blocks(linear.in_features()), format.size});
    sums = node("ReduceSum", {shaped, graph_.list({2})}, Attributes().set("keepdims", int64_t{0}));
  }
  std::vector<OnnxName> inputs{sums, scales.added};
  if (!bias.empty()) inputs.push_back(bias);
  return node("Add", {y, node("Gemm", inputs, Attributes().set("transB", int64_t{1}))});
}

// ---- either kind

OnnxName OnnxLowering::embedding(const OnnxName& ids, int32_t table) {
  if (is_quantised(program_.linear(table).matrix.dtype())) return block_rows(ids, table);
  const std::string& name = constant(table).name;
  // Rows are looked up in the table's own type, and only they become float32.
  return cast(node("Gather", {part(name), ids}, axis(0)), places_.at(name).dtype, DType::F32);
}

OnnxName OnnxLowering::linear(const OnnxName& x, int32_t map) {
  const Linear& linear = program_.linear(map);
  if (is_quantised(linear.matrix.dtype())) return block_linear(x, map);
  const std::string& name = constant(map).name;
  std::vector<OnnxName> inputs{x, plain(name)};
  if (!linear.bias.empty()) inputs.push_back(part(name + ".bias"));
  return node("Gemm", inputs, Attributes().set("transB", int64_t{1}));
}

}  // namespace slipring
