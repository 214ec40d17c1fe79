// The contract of an exported file, checked on the file's own nodes.
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <set>

#include "program/onnx_export.h"

namespace slipring {
namespace {

/// Ops that make integers of integers. Shape is where a walk ends well: it looks at a tensor's shape, not into it.
constexpr std::array<std::string_view, 13> kIntegerOps = {
    "Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Range", "Gather", "Slice", "Concat", "Squeeze", "Unsqueeze"};

class Walk {
 public:
  explicit Walk(const onnx::GraphProto& graph) : graph_(graph) {
    for (const auto& node : graph.node()) {
      for (const auto& output : node.output()) makers_[output] = &node;
    }
    for (const auto& constant : graph.initializer()) constants_.insert(constant.name());
    // A constant that is an input too may be overridden: it is what the caller says.
    for (const auto& input : graph.input()) constants_.erase(input.name());
  }

  std::vector<std::string> run() {
    for (const auto& node : graph_.node()) {
      if (node.op_type() != "ScatterND") continue;
      seen_.clear();
      write_ = node.output(0);
      if (node.input_size() != 3) {
        problems_.push_back(fmt::format("write {} has no index", write_));
      } else {
        back(node.input(1));
      }
    }
    for (const auto& output : graph_.output()) {
      const bool ring = output.name().starts_with("ring.") || output.name().starts_with("drafter.ring.");
      if (!ring) continue;
      const auto maker = makers_.find(output.name());
      if (maker != makers_.end() && maker->second->op_type() == "ScatterND") continue;
      problems_.push_back(fmt::format("{} is not what a write makes", output.name()));
    }
    return std::move(problems_);
  }

 private:
  void back(const std::string& name) {
    std::vector<std::string> open{name};
    while (!open.empty()) {
      const std::string here = open.back();
      open.pop_back();
      if (!seen_.insert(here).second || constants_.count(here) > 0) continue;
      const auto maker = makers_.find(here);
      if (maker == makers_.end()) {
        problems_.push_back(fmt::format("the index of write {} is read from the contents of {}", write_, here));
        continue;
      }
      const onnx::NodeProto& node = *maker->second;
      if (node.op_type() == "Shape" || node.op_type() == "Constant") continue;
      if (std::find(kIntegerOps.begin(), kIntegerOps.end(), node.op_type()) == kIntegerOps.end()) {
        problems_.push_back(fmt::format("the index of write {} passes through {}", write_, node.op_type()));
        continue;
      }
      for (const auto& input : node.input()) open.push_back(input);
    }
  }

  const onnx::GraphProto& graph_;
  std::map<std::string, const onnx::NodeProto*> makers_;
  std::set<std::string> constants_;
  std::set<std::string> seen_;
  std::string write_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> write_index_problems(const onnx::ModelProto& model) {
  return Walk(model.graph()).run();
}

}  // namespace slipring
