// The tensors that hold a program's weights in a file of weights.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "program/onnx_graph.h"
#include "program/program.h"

namespace slipring {

/// One tensor of the file.
struct WeightPart {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> dims;
};

/// Linear maps keep f32, f16 and bf16 as NAME; quantised ones become the parts of block_format.h. A bias is
/// "NAME.bias".
std::vector<WeightPart> weight_parts(const Constant& constant);

/// Where each part lies, by its name.
struct WeightPlace {
  DType dtype = DType::F32;
  std::vector<int64_t> dims;
  ExternalData data;
};
using WeightPlaces = std::map<std::string, WeightPlace>;

}  // namespace slipring
