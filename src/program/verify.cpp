#include "program/verify.h"

#include <fmt/format.h>
#include <set>

#include <slipring/error.h>

namespace slipring {
namespace {

class Verifier {
 public:
  explicit Verifier(const Program& program) : program_(program) {}

  std::vector<std::string> run() {
    if (!check_states()) return std::move(problems_);
    defined_.assign(program_.values.size(), false);
    for (const ProgramState& state : program_.states) defined_[static_cast<size_t>(state.initial)] = true;
    for (size_t i = 0; i < program_.nodes.size(); ++i) check_node(i);
    check_ends();
    return std::move(problems_);
  }

 private:
  template <class... Args>
  void report(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  bool in_range(ValueId id) const { return id >= 0 && static_cast<size_t>(id) < program_.values.size(); }
  const ProgramValue& value(ValueId id) const { return program_.values[static_cast<size_t>(id)]; }

  /// False where the rest could not even be looked at.
  bool check_states() {
    std::set<std::string> names;
    std::set<int> layers;
    for (size_t i = 0; i < program_.states.size(); ++i) {
      const ProgramState& state = program_.states[i];
      if (!names.insert(state.name).second || !layers.insert(state.layer).second) {
        report("state {} is there twice", state.name);
      }
      const KVLayout& layout = state.layout;
      if (layout.n_kv_heads < 1 || layout.head_dim < 1 || (state.is_ring() && state.window < 1) ||
          state.window > state.capacity || state.capacity < 0) {
        report("state {} has no sound geometry", state.name);
      }
      if (!in_range(state.initial) || !in_range(state.final) || value(state.initial).type.kind != ValueKind::state ||
          value(state.initial).version != 0 || value(state.final).type.kind != ValueKind::state) {
        report("state {} has no first and last version", state.name);
        return false;
      }
      const ValueType expected{
          .kind = ValueKind::state,
          .dtype = layout.dtype,
          .dims = {state.is_ring() ? SymInt(state.capacity) : offset_dim(), layout.n_kv_heads, layout.head_dim}};
      if (!value(state.initial).type.same(expected)) {
        report("state {} is {}, not {}", state.name, value(state.initial).type.to_string(), expected.to_string());
      }
      current_.push_back(state.initial);
    }
    for (const ProgramValue& v : program_.values) {
      const bool needs_state = v.type.kind != ValueKind::tensor;
      if (needs_state && (v.state < 0 || static_cast<size_t>(v.state) >= program_.states.size())) {
        report("a value belongs to no state");
        return false;
      }
    }
    return true;
  }

  std::string where(size_t index) const {
    return fmt::format("node {} ({})", index, to_string(program_.nodes[index].op));
  }

  void check_node(size_t index) {
    const Node& node = program_.nodes[index];
    bool sound = true;
    for (const ValueId input : node.inputs) {
      if (!in_range(input)) {
        report("{} uses a value that does not exist", where(index));
        sound = false;
      } else if (!defined_[static_cast<size_t>(input)]) {
        report("{} uses {} before it is defined", where(index), program_.value_name(input));
        sound = false;
      }
    }
    if (!in_range(node.output)) {
      report("{} defines a value that does not exist", where(index));
      return;
    }
    if (defined_[static_cast<size_t>(node.output)]) {
      report("{} defines {} a second time", where(index), program_.value_name(node.output));
      sound = false;
    }
    defined_[static_cast<size_t>(node.output)] = true;
    if (!sound) return;
    try {
      const ValueType expected = infer_type(program_, node);
      if (!value(node.output).type.same(expected)) {
        report("{} declares {}, but gives {}", where(index), value(node.output).type.to_string(), expected.to_string());
        return;
      }
    } catch (const Error& error) {
      report("{}: {}", where(index), error.what());
      return;
    }
    for (const ValueId input : node.inputs) check_version(index, input);
    check_state_op(index);
  }

  /// Reads of states and of views: only of the version that is current.
  void check_version(size_t index, ValueId input) {
    const ProgramValue& source = value(input);
    if (source.type.kind == ValueKind::tensor) return;
    const ProgramValue& now = value(current_[static_cast<size_t>(source.state)]);
    if (source.version == now.version) return;
    const ProgramState& state = program_.states[static_cast<size_t>(source.state)];
    report("{} reads {} version {} after version {} was written", where(index), state.name, source.version,
           now.version);
  }

  void check_state_op(size_t index) {
    const Node& node = program_.nodes[index];
    const ProgramValue& result = value(node.output);
    if (node.op == OpKind::attention) return check_attention(index);
    if (node.op != OpKind::concat && node.op != OpKind::write && node.op != OpKind::read) return;
    const ProgramValue& source = value(node.inputs[0]);
    const ProgramState& state = program_.states[static_cast<size_t>(source.state)];
    const int32_t version = source.version + (node.op == OpKind::write ? 1 : 0);
    if (result.state != source.state || result.version != version) {
      report("{} must give version {} of {}", where(index), version, state.name);
      return;
    }
    if (node.op != OpKind::write) {
      if (state.is_ring() && program_.mode == StepMode::prefill && source.version > 0) {
        report(
            "{} reads {} after the step's own write: with more than one token its first queries miss keys "
            "that the write evicted; read (concat) first, then write",
            where(index), program_.value_name(node.inputs[0]));
      }
      if (node.op == OpKind::concat && source.version > 0) {
        report("{} adds the step's keys to {}, which holds them already", where(index),
               program_.value_name(node.inputs[0]));
      }
      return;
    }
    if (source.version > 0) report("{} writes {} twice in one step", where(index), state.name);
    const SymInt begin = state.is_ring() ? state.step().write_begin() : offset_dim();
    if (!node.get<WriteUse>().begin.same_expression(begin)) {
      report("{} of {} begins at {}, not at {}", where(index), state.name, node.get<WriteUse>().begin.to_string(),
             begin.to_string());
    }
    current_[static_cast<size_t>(source.state)] = node.output;
  }

  void check_attention(size_t index) {
    const Node& node = program_.nodes[index];
    const ProgramState& state = program_.state_of(node.inputs[1]);
    const auto& use = node.get<AttentionUse>();
    if (state.is_ring() && (use.window < 1 || use.window > state.window)) {
      report("{} looks {} keys back in {}, whose window is {}", where(index), use.window, state.name, state.window);
    }
  }

  void check_ends() {
    for (size_t i = 0; i < program_.states.size(); ++i) {
      if (program_.states[i].final != current_[i]) {
        report("{} ends as {}, but the last version is {}", program_.states[i].name,
               program_.value_name(program_.states[i].final), program_.value_name(current_[i]));
      }
    }
    std::set<std::string> names;
    for (const ProgramOutput& output : program_.outputs) {
      if (!names.insert(output.name).second) report("output {} is there twice", output.name);
      if (!in_range(output.value) || !defined_[static_cast<size_t>(output.value)] ||
          value(output.value).type.kind != ValueKind::tensor) {
        report("output {} is not defined", output.name);
      }
    }
    if (program_.hidden != -1 && (!in_range(program_.hidden) || !defined_[static_cast<size_t>(program_.hidden)])) {
      report("the hidden states are not defined");
    }
  }

  const Program& program_;
  std::vector<std::string> problems_;
  std::vector<bool> defined_;
  std::vector<ValueId> current_;  // by state
};

}  // namespace

std::vector<std::string> problems(const Program& program) {
  return Verifier(program).run();
}

void verify(const Program& program) {
  const auto found = problems(program);
  if (found.empty()) return;
  throw Error(ErrorCode::bad_file, {.where = "program " + program.name,
                                    .expected = "a sound program",
                                    .got = fmt::format("{}", fmt::join(found, "; ")),
                                    .advice = {}});
}

}  // namespace slipring
