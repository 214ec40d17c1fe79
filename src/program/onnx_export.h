// A program as an ONNX model: the standard operators of opset 17, and MatMulNBits for block-quantised weights.
#pragma once

#include <map>
#include <onnx/onnx_pb.h>
#include <string>
#include <vector>

#include "program/onnx_graph.h"
#include "program/program.h"

namespace slipring {

/// Where each part of a program's weights lies, by the part's name: weight_parts() says which parts there are.
struct WeightPlace {
  DType dtype = DType::F32;
  std::vector<int64_t> dims;
  ExternalData data;
};
using WeightPlaces = std::map<std::string, WeightPlace>;

/// How the file of weights holds one constant.
struct WeightPart {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> dims;
};
/// Linear maps keep f32, f16, bf16; q8_0 and q4_0 become "NAME.blocks" [rows, blocks, bytes] U8 and "NAME.scales"
/// [rows, blocks] F32, as MatMulNBits wants them; every other type, and a quantised embedding table, becomes f32.
/// A bias is "NAME.bias".
std::vector<WeightPart> weight_parts(const Program& program, const Constant& constant);
/// Whether weight_parts() gives blocks and scales for this constant.
bool exports_as_blocks(const Program& program, const Constant& constant);

/// Names of the graph's tensors. A ring's and a full cache's state is two inputs, and two outputs where it is written.
OnnxName state_input(const ProgramState& state, char part);   ///< "ring.3.k"; part is 'k' or 'v'
OnnxName state_output(const ProgramState& state, char part);  ///< "ring.3.k.next"
/// The input whose first dimension is the offset: a full cache's keys, or "past" [offset, 0] where there is none; empty
/// for a program without states.
OnnxName offset_input(const Program& program);

/// Inputs: token_ids [query_len] int64 or inputs_embeds [query_len, hidden_size], then the states, each
/// [slots or offset, n_kv_heads, head_dim]; outputs: the program's, then the written states. Nothing in the graph is as
/// long as a traced length; query_len and offset are read from the inputs' shapes.
/// @throws Error{bad_file} if the program is not sound; Error{unsupported} for what ONNX has no operator for
onnx::ModelProto to_onnx(const Program& program, const WeightPlaces& places);

/// What every exported model must keep to, checked on the finished file: each ring write's index comes from shape
/// queries and constants only, never from a tensor's contents. Returns one sentence for each that does not.
std::vector<std::string> write_index_problems(const onnx::ModelProto& model);

}  // namespace slipring
