// A program as an ONNX model: the standard operators of opset 17, and MatMulNBits for block-quantised weights.
#pragma once

#include <onnx/onnx_pb.h>
#include <string>
#include <vector>

#include "program/onnx_graph.h"
#include "program/program.h"
#include "program/weight_parts.h"

namespace slipring {

/// Names of the graph's tensors. A ring's and a full cache's state is two inputs, and two outputs where it is written.
OnnxName state_input(const ProgramState& state, char part);   ///< "ring.3.k"; part is 'k' or 'v'
OnnxName state_output(const ProgramState& state, char part);  ///< "ring.3.k.next"
/// The input whose first dimension is the offset: a full cache's keys, or "past" [offset, 0] where there is none; empty
/// for a program without states.
OnnxName offset_input(const Program& program);
/// The dimensions of an input or output: numbers, "query_len", "offset", or "seq_len" (offset + query_len). Where the
/// program may take one token only, query_len is the number 1, so that any runtime refuses more.
std::vector<OnnxGraph::Dim> onnx_dims(const Program& program, const ValueType& type);

/// Inputs: token_ids [query_len] int64 or inputs_embeds [query_len, hidden_size], then the states, each
/// [slots or offset, n_kv_heads, head_dim]; outputs: the program's, then the written states. Nothing in the graph is as
/// long as a traced length; query_len and offset are read from the inputs' shapes.
/// @throws Error{bad_file} if the program is not sound; Error{unsupported} for what ONNX has no operator for
onnx::ModelProto to_onnx(const Program& program, const WeightPlaces& places);

/// What every exported model must keep to, checked on the finished file: each ring write's index comes from shape
/// queries and constants only, never from a tensor's contents; and each ring leaves through such a write. Returns one
/// sentence for each that does not.
std::vector<std::string> write_index_problems(const onnx::ModelProto& model);

}  // namespace slipring
