#include "program/program.h"

#include <algorithm>
#include <fmt/format.h>

#include <slipring/error.h>

namespace slipring {

SymInt query_len_dim() {
  return SymInt::dimension("query_len");
}
SymInt offset_dim() {
  return SymInt::dimension("offset");
}

std::string_view to_string(OpKind kind) noexcept {
  constexpr std::string_view kNames[] = {
      "token_ids", "input_embeddings", "embedding", "linear",     "norm",   "rope",  "gated", "sigmoid_gate", "add",
      "scale",     "softcap",          "columns",   "logit_rows", "concat", "write", "read",  "attention",    "moe"};
  return kNames[static_cast<size_t>(kind)];
}

bool ValueType::same(const ValueType& other) const noexcept {
  return kind == other.kind && dtype == other.dtype &&
         std::equal(dims.begin(), dims.end(), other.dims.begin(), other.dims.end(),
                    [](const SymInt& a, const SymInt& b) { return a.same_expression(b); });
}

std::string ValueType::to_string() const {
  std::string text = kind == ValueKind::tensor ? "" : kind == ValueKind::state ? "state " : "kv ";
  text += slipring::to_string(dtype);
  text += " [";
  for (size_t i = 0; i < dims.size(); ++i) text += (i == 0 ? "" : ", ") + dims[i].to_string();
  return text + "]";
}

std::string tap_name(int layer) {
  return fmt::format("hidden.{}", layer);
}

ring::Step ProgramState::step() const {
  return {.offset = offset_dim(), .query_len = query_len_dim(), .capacity = capacity, .window = window};
}

std::string Program::value_name(ValueId id) const {
  const ProgramValue& value = values[static_cast<size_t>(id)];
  if (value.type.kind != ValueKind::state) return fmt::format("%{}", id);
  return fmt::format("{}@{}", states[static_cast<size_t>(value.state)].name, value.version);
}

const Linear& Program::linear(int32_t constant) const {
  return *std::get<std::shared_ptr<const Linear>>(constants[static_cast<size_t>(constant)].weight);
}

bool Program::has_ring() const noexcept {
  return std::any_of(states.begin(), states.end(), [](const ProgramState& state) { return state.is_ring(); });
}

int Program::count(OpKind op) const noexcept {
  return static_cast<int>(std::count_if(nodes.begin(), nodes.end(), [op](const Node& node) { return node.op == op; }));
}

std::shared_ptr<const Mixture> gather_mixture(const Program& program, const MixtureUse& use) {
  const auto refuse = [](std::string expected, std::string got) {
    throw Error(ErrorCode::shape_mismatch,
                {.where = "program op moe", .expected = std::move(expected), .got = std::move(got), .advice = {}});
  };
  if (use.experts < 1 || use.per_token < 1 || use.per_token > use.experts) {
    refuse("at least one expert, and no more a token than there are",
           fmt::format("{} experts, {} a token", use.experts, use.per_token));
  }
  const int64_t count = 1 + int64_t{use.experts} * MixtureUse::kMapsPerExpert;
  const auto known = static_cast<int64_t>(program.constants.size());
  if (use.first < 0 || use.first > known - count) {
    refuse(fmt::format("{} linear maps from constant {} on", count, use.first), fmt::format("{} constants", known));
  }
  const auto map = [&](int32_t index, int64_t out, int64_t in) -> const Linear& {
    const auto* found =
        std::get_if<std::shared_ptr<const Linear>>(&program.constants[static_cast<size_t>(index)].weight);
    if (found == nullptr || (*found)->out_features() != out || (*found)->in_features() != in) {
      refuse(fmt::format("a linear map [{}, {}] as constant {}", out, in, index),
             found == nullptr ? std::string("none")
                              : fmt::format("[{}, {}]", (*found)->out_features(), (*found)->in_features()));
    }
    return **found;
  };
  const auto* router =
      std::get_if<std::shared_ptr<const Linear>>(&program.constants[static_cast<size_t>(use.router())].weight);
  const auto* gate =
      std::get_if<std::shared_ptr<const Linear>>(&program.constants[static_cast<size_t>(use.expert(0)[0])].weight);
  if (router == nullptr || gate == nullptr) refuse("linear maps", "another kind of constant");
  const int64_t width = (*router)->in_features();
  const int64_t inner = (*gate)->out_features();
  auto mixture = std::make_shared<Mixture>();
  mixture->router = map(use.router(), use.experts, width);
  for (int32_t i = 0; i < use.experts; ++i) {
    const auto [gate_map, up_map, down_map] = use.expert(i);
    mixture->experts.push_back(
        {.gate = map(gate_map, inner, width), .up = map(up_map, inner, width), .down = map(down_map, width, inner)});
  }
  mixture->experts_per_token = use.per_token;
  mixture->alpha = use.alpha;
  mixture->limit = use.limit;
  return mixture;
}

Obligations obligations(const Program& program) {
  Obligations result;
  for (const Node& node : program.nodes) {
    if (node.inputs.empty()) continue;
    const ProgramValue& source = program.values[static_cast<size_t>(node.inputs[0])];
    if (source.type.kind != ValueKind::state || !program.state_of(node.inputs[0]).is_ring()) continue;
    if (node.op == OpKind::write) {
      result.no_wrap.push_back(program.state_of(node.inputs[0]).capacity);
    } else if (source.version > 0) {
      result.single_token = true;
    }
  }
  std::sort(result.no_wrap.begin(), result.no_wrap.end());
  result.no_wrap.erase(std::unique(result.no_wrap.begin(), result.no_wrap.end()), result.no_wrap.end());
  return result;
}

std::vector<std::string> Obligations::text() const {
  std::vector<std::string> lines;
  if (single_token) lines.emplace_back("query_len == 1");
  for (const int64_t capacity : no_wrap) {
    lines.push_back(
        fmt::format("{} + query_len <= {}", ring::slot_of<SymInt>(offset_dim(), capacity).to_string(), capacity));
  }
  return lines;
}

void remove_dead_nodes(Program& program) {
  std::vector<bool> live(program.values.size(), false);
  for (const ProgramOutput& output : program.outputs) live[static_cast<size_t>(output.value)] = true;
  for (const ProgramState& state : program.states) live[static_cast<size_t>(state.final)] = true;
  std::vector<Node> kept;
  for (auto node = program.nodes.rbegin(); node != program.nodes.rend(); ++node) {
    if (!live[static_cast<size_t>(node->output)]) continue;
    for (const ValueId input : node->inputs) live[static_cast<size_t>(input)] = true;
    kept.push_back(std::move(*node));
  }
  std::reverse(kept.begin(), kept.end());
  program.nodes = std::move(kept);
}

}  // namespace slipring
