// The readable form of a program; parse.cpp reads it.
#include <fmt/format.h>

#include "program/program.h"

namespace slipring {
namespace {

// Names from model files may hold anything; quotes, backslashes and control characters are written as \xx.
std::string quoted(const std::string& name) {
  std::string text = "\"";
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\' || byte < 0x20 || byte == 0x7f) {
      text += fmt::format("\\{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text + "\"";
}

std::string constant_text(size_t index, const Constant& constant) {
  const auto line = [&](std::string_view kind, DType dtype, const std::string& shape, std::string_view more) {
    return fmt::format("const c{} {} {} {} {}{}\n", index, kind, quoted(constant.name), to_string(dtype), shape, more);
  };
  if (const auto* linear = std::get_if<std::shared_ptr<const Linear>>(&constant.weight)) {
    const PackedMatrix& matrix = (*linear)->matrix;
    return line(
        "linear", matrix.dtype(), Shape{matrix.rows(), matrix.cols()}.to_string(),
        fmt::format("{}{}", (*linear)->bias.empty() ? "" : " bias", (*linear)->fine_activations ? " fine" : ""));
  }
  if (const auto* norm = std::get_if<std::shared_ptr<const Norm>>(&constant.weight)) {
    return line("norm", DType::F32, (*norm)->weight.shape().to_string(), "");
  }
  const auto& tensor = std::get<Tensor>(constant.weight);
  return line("vector", tensor.dtype(), tensor.shape().to_string(), "");
}

std::string_view activation_name(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return "silu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::gelu_erf:
      return "gelu_erf";
  }
  return "silu";
}

std::string_view rows_name(LogitRows rows) {
  return rows == LogitRows::all ? "all" : rows == LogitRows::last ? "last" : "none";
}

/// {inputs after the values, braces after the parenthesis}
struct NodeText {
  std::string operands;
  std::string attributes;
};

NodeText node_text(const Node& node) {
  if (const auto* use = std::get_if<WeightUse>(&node.attributes)) return {fmt::format("c{}", use->constant), {}};
  if (const auto* use = std::get_if<NormUse>(&node.attributes)) {
    return {use->constant >= 0 ? fmt::format("c{}", use->constant) : std::string(),
            fmt::format(" {{kind={}, size={}, eps={}}}", use->kind == NormKind::rms ? "rms" : "layer", use->size,
                        use->eps)};
  }
  if (const auto* use = std::get_if<RopeUse>(&node.attributes)) {
    return {fmt::format("r{}", use->rope), fmt::format(" {{head_dim={}}}", use->head_dim)};
  }
  if (const auto* use = std::get_if<GatedUse>(&node.attributes)) {
    return {{}, fmt::format(" {{activation={}}}", activation_name(use->activation))};
  }
  if (const auto* use = std::get_if<FactorUse>(&node.attributes)) {
    return {{}, fmt::format(" {{factor={}}}", use->factor)};
  }
  if (const auto* use = std::get_if<ColumnsUse>(&node.attributes)) {
    return {{}, fmt::format(" {{first={}, count={}}}", use->first, use->count)};
  }
  if (const auto* use = std::get_if<LogitRowsUse>(&node.attributes)) {
    return {{}, fmt::format(" {{rows={}}}", rows_name(use->rows))};
  }
  if (const auto* use = std::get_if<WriteUse>(&node.attributes)) {
    return {{}, fmt::format(" {{begin={}}}", use->begin.to_string())};
  }
  if (const auto* use = std::get_if<AttentionUse>(&node.attributes)) {
    return {use->sinks >= 0 ? fmt::format("c{}", use->sinks) : std::string(),
            fmt::format(" {{n_heads={}, scale={}, softcap={}, window={}, both_ways={}}}", use->n_heads, use->scale,
                        use->softcap, use->window, use->both_ways ? 1 : 0)};
  }
  if (const auto* use = std::get_if<MixtureUse>(&node.attributes)) {
    return {fmt::format("c{}", use->first), fmt::format(" {{experts={}, per_token={}, alpha={}, limit={}}}",
                                                        use->experts, use->per_token, use->alpha, use->limit)};
  }
  return {};
}

}  // namespace

std::string to_text(const Program& program) {
  std::string text =
      fmt::format("program {} mode {}\n", quoted(program.name), program.mode == StepMode::main ? "main" : "prefill");
  for (const std::string& line : obligations(program).text()) text += "# requires " + line + "\n";
  for (size_t i = 0; i < program.constants.size(); ++i) text += constant_text(i, program.constants[i]);
  for (size_t i = 0; i < program.ropes.size(); ++i) {
    const Rope& rope = program.ropes[i];
    text += fmt::format("rope r{} {} magnitude {} frequencies {}\n", i,
                        rope.layout == RopeLayout::halves ? "halves" : "interleaved", rope.magnitude,
                        fmt::join(rope.inverse_frequencies, " "));
  }
  for (const ProgramState& state : program.states) {
    text += fmt::format("state {} layer {} capacity {} window {} heads {} head_dim {} {}\n", state.name, state.layer,
                        state.capacity, state.window, state.layout.n_kv_heads, state.layout.head_dim,
                        to_string(state.layout.dtype));
  }
  for (const Node& node : program.nodes) {
    std::string operands;
    for (const ValueId input : node.inputs) operands += (operands.empty() ? "" : ", ") + program.value_name(input);
    const NodeText more = node_text(node);
    if (!more.operands.empty()) operands += (operands.empty() ? "" : ", ") + more.operands;
    text += fmt::format("{} = {}({}){} : {}\n", program.value_name(node.output), to_string(node.op), operands,
                        more.attributes, program.type(node.output).to_string());
  }
  if (program.hidden >= 0) text += fmt::format("hidden {}\n", program.value_name(program.hidden));
  for (const ProgramOutput& output : program.outputs) {
    text += fmt::format("output {} {}\n", quoted(output.name), program.value_name(output.value));
  }
  return text;
}

}  // namespace slipring
