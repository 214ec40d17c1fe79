#include "program/onnx_graph.h"

#include <fmt/format.h>

#include <slipring/error.h>

namespace slipring {
namespace {

void set_dims(onnx::TypeProto& type, int32_t element, const std::vector<OnnxGraph::Dim>& dims) {
  auto& tensor = *type.mutable_tensor_type();
  tensor.set_elem_type(element);
  auto& shape = *tensor.mutable_shape();
  for (const OnnxGraph::Dim& dim : dims) {
    auto& entry = *shape.add_dim();
    if (dim.name.empty()) {
      entry.set_dim_value(dim.value);
    } else {
      entry.set_dim_param(dim.name);
    }
  }
}

template <class T>
std::string bytes(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

int32_t onnx_type(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return onnx::TensorProto::FLOAT;
    case DType::F16:
      return onnx::TensorProto::FLOAT16;
    case DType::BF16:
      return onnx::TensorProto::BFLOAT16;
    case DType::I64:
      return onnx::TensorProto::INT64;
    case DType::I32:
      return onnx::TensorProto::INT32;
    case DType::U8:
      return onnx::TensorProto::UINT8;
    case DType::I8:
      return onnx::TensorProto::INT8;
    default:
      throw Error(ErrorCode::unsupported, {.where = "ONNX export",
                                           .expected = "a plain element type",
                                           .got = std::string(to_string(dtype)),
                                           .advice = {}});
  }
}

OnnxGraph::Attributes& OnnxGraph::Attributes::set(std::string_view name, int64_t value) {
  auto& attribute = list_.emplace_back();
  attribute.set_name(std::string(name));
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
  return *this;
}

OnnxGraph::Attributes& OnnxGraph::Attributes::set(std::string_view name, float value) {
  auto& attribute = list_.emplace_back();
  attribute.set_name(std::string(name));
  attribute.set_type(onnx::AttributeProto::FLOAT);
  attribute.set_f(value);
  return *this;
}

OnnxGraph::Attributes& OnnxGraph::Attributes::set(std::string_view name, std::vector<int64_t> values) {
  auto& attribute = list_.emplace_back();
  attribute.set_name(std::string(name));
  attribute.set_type(onnx::AttributeProto::INTS);
  for (const int64_t value : values) attribute.add_ints(value);
  return *this;
}

OnnxGraph::OnnxGraph(const std::string& name) : graph_(*model_.mutable_graph()) {
  model_.set_ir_version(kIrVersion);
  model_.set_producer_name("slipring");
  graph_.set_name(name);
  uses_domain("", kOpset);
}

void OnnxGraph::uses_domain(const std::string& domain, int64_t version) {
  for (const auto& known : model_.opset_import()) {
    if (known.domain() == domain) return;
  }
  auto& opset = *model_.add_opset_import();
  opset.set_domain(domain);
  opset.set_version(version);
}

void OnnxGraph::metadata(const std::string& key, const std::string& value) {
  auto& entry = *model_.add_metadata_props();
  entry.set_key(key);
  entry.set_value(value);
}

OnnxName OnnxGraph::unused(std::string_view stem) {
  const auto found = counters_.find(stem);
  const int number = found == counters_.end() ? counters_.emplace(stem, 0).first->second : ++found->second;
  return fmt::format("{}#{}", stem, number);
}

OnnxName OnnxGraph::node(std::string_view op, const std::vector<OnnxName>& inputs, const Attributes& attributes,
                         const OnnxName& output, std::string_view domain) {
  auto& node = *graph_.add_node();
  node.set_op_type(std::string(op));
  node.set_domain(std::string(domain));
  for (const OnnxName& input : inputs) node.add_input(input);
  for (const auto& attribute : attributes.list_) *node.add_attribute() = attribute;
  const OnnxName name = output.empty() ? unused(op) : output;
  node.set_name(name);
  node.add_output(name);
  return name;
}

std::vector<OnnxName> OnnxGraph::nodes(std::string_view op, const std::vector<OnnxName>& inputs,
                                       const Attributes& attributes, int outputs) {
  std::vector<OnnxName> names{node(op, inputs, attributes)};
  auto& made = *graph_.mutable_node(graph_.node_size() - 1);
  for (int i = 1; i < outputs; ++i) {
    names.push_back(unused(op));
    made.add_output(names.back());
  }
  return names;
}

onnx::TensorProto& OnnxGraph::initializer(const OnnxName& name, int32_t type, const std::vector<int64_t>& dims) {
  auto& tensor = *graph_.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(type);
  for (const int64_t dim : dims) tensor.add_dims(dim);
  return tensor;
}

OnnxName OnnxGraph::list(const std::vector<int64_t>& values) {
  const std::string raw = bytes(std::span(values));
  OnnxName& name = constants_["list " + raw];
  if (name.empty()) {
    name = unused("ints");
    initializer(name, onnx::TensorProto::INT64, {static_cast<int64_t>(values.size())}).set_raw_data(raw);
  }
  return name;
}

OnnxName OnnxGraph::scalar(int64_t value) {
  OnnxName& name = constants_["int " + std::to_string(value)];
  if (name.empty()) {
    name = unused("int");
    initializer(name, onnx::TensorProto::INT64, {}).set_raw_data(bytes(std::span<const int64_t>(&value, 1)));
  }
  return name;
}

OnnxName OnnxGraph::int32(int32_t value) {
  OnnxName& name = constants_["int32 " + std::to_string(value)];
  if (name.empty()) {
    name = unused("int");
    initializer(name, onnx::TensorProto::INT32, {}).set_raw_data(bytes(std::span<const int32_t>(&value, 1)));
  }
  return name;
}

OnnxName OnnxGraph::scalar(float value) {
  return floats({&value, 1}, {});
}

OnnxName OnnxGraph::floats(std::span<const float> values, const std::vector<int64_t>& dims) {
  const std::string raw = bytes(values);
  OnnxName& name = constants_[fmt::format("floats {} {}", fmt::join(dims, ","), raw)];
  if (name.empty()) {
    name = unused("floats");
    initializer(name, onnx::TensorProto::FLOAT, dims).set_raw_data(raw);
  }
  return name;
}

OnnxName OnnxGraph::weight(const std::string& name, DType dtype, const std::vector<int64_t>& dims,
                           const ExternalData& data) {
  OnnxName& known = constants_["weight " + name];
  if (!known.empty()) return known;
  known = name;
  auto& tensor = initializer(name, onnx_type(dtype), dims);
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  const auto add = [&tensor](const char* key, std::string value) {
    auto& entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(std::move(value));
  };
  add("location", data.file);
  add("offset", std::to_string(data.offset));
  add("length", std::to_string(data.bytes));
  return known;
}

OnnxName OnnxGraph::input(const OnnxName& name, DType dtype, const std::vector<Dim>& dims) {
  auto& value = *graph_.add_input();
  value.set_name(name);
  set_dims(*value.mutable_type(), onnx_type(dtype), dims);
  return name;
}

void OnnxGraph::output(const OnnxName& name, DType dtype, const std::vector<Dim>& dims) {
  auto& value = *graph_.add_output();
  value.set_name(name);
  set_dims(*value.mutable_type(), onnx_type(dtype), dims);
}

}  // namespace slipring
