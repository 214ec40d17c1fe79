// Builds one ONNX graph: nodes, constants and names. Knows ONNX, not programs.
#pragma once

#include <cstdint>
#include <map>
#include <onnx/onnx_pb.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <slipring/dtype.h>

namespace slipring {

/// ONNX's number of a plain type. @throws Error{unsupported}
int32_t onnx_type(DType dtype);

/// A result in the graph, by its ONNX name.
using OnnxName = std::string;

/// Where a weight lies in the file beside the graph.
struct ExternalData {
  std::string file;  ///< relative to the graph's own file
  int64_t offset = 0;
  int64_t bytes = 0;
};

/// Every function returns the name of what it made. Equal constants are made once. Threads: one.
class OnnxGraph {
 public:
  static constexpr int kOpset = 17;
  static constexpr int kIrVersion = 8;

  explicit OnnxGraph(const std::string& name);

  /// Attributes of a node, in the order they are added.
  class Attributes {
   public:
    Attributes& set(std::string_view name, int64_t value);
    Attributes& set(std::string_view name, float value);
    Attributes& set(std::string_view name, std::vector<int64_t> values);

   private:
    friend class OnnxGraph;
    std::vector<onnx::AttributeProto> list_;
  };

  /// @param output  its name; empty: one is made from the op's
  OnnxName node(std::string_view op, const std::vector<OnnxName>& inputs, const Attributes& attributes = {},
                const OnnxName& output = {}, std::string_view domain = {});
  /// A node of several outputs.
  std::vector<OnnxName> nodes(std::string_view op, const std::vector<OnnxName>& inputs, const Attributes& attributes,
                              int outputs);

  OnnxName scalar(int64_t value);                     ///< [] int64
  OnnxName int32(int32_t value);                      ///< [] int32
  OnnxName scalar(float value);                       ///< [] float32
  OnnxName list(const std::vector<int64_t>& values);  ///< [n] int64
  OnnxName floats(std::span<const float> values, const std::vector<int64_t>& dims);
  OnnxName weight(const std::string& name, DType dtype, const std::vector<int64_t>& dims, const ExternalData& data);

  /// A dimension is a number or a name.
  struct Dim {
    int64_t value = 0;
    std::string name;
  };
  OnnxName input(const OnnxName& name, DType dtype, const std::vector<Dim>& dims);
  void output(const OnnxName& name, DType dtype, const std::vector<Dim>& dims);
  void uses_domain(const std::string& domain, int64_t version);
  void metadata(const std::string& key, const std::string& value);

  const onnx::ModelProto& model() const noexcept { return model_; }

 private:
  OnnxName unused(std::string_view stem);
  onnx::TensorProto& initializer(const OnnxName& name, int32_t type, const std::vector<int64_t>& dims);

  onnx::ModelProto model_;
  onnx::GraphProto& graph_;
  std::map<std::string, int, std::less<>> counters_;
  std::map<std::string, OnnxName> constants_;  // by their bytes
};

}  // namespace slipring
