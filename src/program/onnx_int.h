// Integers of an ONNX graph with C++ operators, so that the formulas of ring.h write themselves into the graph.
#pragma once

#include <utility>

#include "program/onnx_graph.h"

namespace slipring {

/// The result of a comparison: a bool tensor in the graph.
struct OnnxBool {
  OnnxGraph* graph = nullptr;
  OnnxName name;

  friend OnnxBool operator&(const OnnxBool& a, const OnnxBool& b) {
    return {a.graph, a.graph->node("And", {a.name, b.name})};
  }
};

/// An int64 tensor of the graph, or a constant that is not in it yet. Shapes broadcast: the slots of a ring [1, slots]
/// against the queries [query_len, 1] give a mask. Division and remainder only of non-negative numbers, as in SymInt.
class OnnxInt {
 public:
  OnnxInt(int64_t value) : value_(value) {}  // NOLINT(google-explicit-constructor): reads like arithmetic
  OnnxInt(OnnxGraph& graph, OnnxName name) : graph_(&graph), name_(std::move(name)) {}

  OnnxName in(OnnxGraph& graph) const { return graph_ == nullptr ? graph.scalar(value_) : name_; }

  friend OnnxInt operator+(const OnnxInt& a, const OnnxInt& b) { return binary("Add", a, b); }
  friend OnnxInt operator-(const OnnxInt& a, const OnnxInt& b) { return binary("Sub", a, b); }
  friend OnnxInt operator*(const OnnxInt& a, const OnnxInt& b) { return binary("Mul", a, b); }
  friend OnnxInt operator/(const OnnxInt& a, const OnnxInt& b) { return binary("Div", a, b); }
  friend OnnxInt operator%(const OnnxInt& a, const OnnxInt& b) { return binary("Mod", a, b); }
  friend OnnxInt min(const OnnxInt& a, const OnnxInt& b) { return binary("Min", a, b); }
  friend OnnxInt max(const OnnxInt& a, const OnnxInt& b) { return binary("Max", a, b); }
  friend OnnxBool operator>=(const OnnxInt& a, const OnnxInt& b) { return compare("GreaterOrEqual", a, b); }
  friend OnnxBool operator<=(const OnnxInt& a, const OnnxInt& b) { return compare("LessOrEqual", a, b); }
  friend OnnxBool operator<(const OnnxInt& a, const OnnxInt& b) { return compare("Less", a, b); }

 private:
  static OnnxGraph& graph_of(const OnnxInt& a, const OnnxInt& b) { return a.graph_ != nullptr ? *a.graph_ : *b.graph_; }
  /// @pre at least one of them is in a graph: sums of constants are the caller's own
  static OnnxInt binary(const char* op, const OnnxInt& a, const OnnxInt& b) {
    OnnxGraph& graph = graph_of(a, b);
    return {graph, graph.node(op, {a.in(graph), b.in(graph)})};
  }
  static OnnxBool compare(const char* op, const OnnxInt& a, const OnnxInt& b) {
    OnnxGraph& graph = graph_of(a, b);
    return {&graph, graph.node(op, {a.in(graph), b.in(graph)})};
  }

  OnnxGraph* graph_ = nullptr;
  OnnxName name_;
  int64_t value_ = 0;
};

}  // namespace slipring
