#include "program/weight_parts.h"

#include "program/block_format.h"

namespace slipring {
namespace {

void add_blocks(const std::string& name, const PackedMatrix& matrix, std::vector<WeightPart>& parts) {
  const BlockFormat format = *block_format(matrix.dtype());
  const int64_t rows = matrix.rows();
  const int64_t blocks = format.blocks(matrix.cols());
  const int64_t groups = format.groups(matrix.cols());
  parts.push_back({.name = name + ".blocks", .dtype = DType::U8, .dims = {rows, blocks, format.block_bytes()}});
  parts.push_back({.name = name + ".d", .dtype = format.wide_d ? DType::F32 : DType::F16, .dims = {rows, groups}});
  if (format.sub_scales) parts.push_back({.name = name + ".s", .dtype = DType::I8, .dims = {rows, blocks}});
  if (format.minima) parts.push_back({.name = name + ".dmin", .dtype = DType::F16, .dims = {rows, groups}});
  if (format.sub_minima) parts.push_back({.name = name + ".m", .dtype = DType::I8, .dims = {rows, blocks}});
}

}  // namespace

std::vector<WeightPart> weight_parts(const Constant& constant) {
  if (const auto* norm = std::get_if<std::shared_ptr<const Norm>>(&constant.weight)) {
    return {{.name = constant.name, .dtype = DType::F32, .dims = {(*norm)->weight.elements()}}};
  }
  if (const auto* tensor = std::get_if<Tensor>(&constant.weight)) {
    return {{.name = constant.name, .dtype = DType::F32, .dims = {tensor->elements()}}};
  }
  const Linear& linear = *std::get<std::shared_ptr<const Linear>>(constant.weight);
  const PackedMatrix& matrix = linear.matrix;
  std::vector<WeightPart> parts;
  if (is_quantised(matrix.dtype())) {
    add_blocks(constant.name, matrix, parts);
  } else {
    parts.push_back({.name = constant.name, .dtype = matrix.dtype(), .dims = {matrix.rows(), matrix.cols()}});
  }
  if (!linear.bias.empty()) {
    parts.push_back({.name = constant.name + ".bias", .dtype = DType::F32, .dims = {matrix.rows()}});
  }
  return parts;
}

}  // namespace slipring
