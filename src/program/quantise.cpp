#include "program/quantise.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <vector>

#include <slipring/error.h>

#include "formats/codec.h"

namespace slipring {

WeightQuantiser::WeightQuantiser(DType dtype, ThreadPool& pool) : dtype_(dtype), pool_(pool) {
  if (dtype == DType::Q8_0 || dtype == DType::Q4_0) return;
  throw Error(
      ErrorCode::invalid_argument,
      {.where = "quantised export", .expected = "Q8_0 or Q4_0", .got = std::string(to_string(dtype)), .advice = {}});
}

std::shared_ptr<const Linear> WeightQuantiser::operator()(const std::shared_ptr<const Linear>& linear) {
  std::shared_ptr<const Linear>& known = done_[linear.get()];
  if (known) return known;
  const PackedMatrix& source = linear->matrix;
  if (source.dtype() == dtype_ || source.cols() % info(dtype_).block_elements != 0) return known = linear;
  Tensor blocks(dtype_, {source.rows(), source.cols()});
  const int64_t row_bytes = bytes_of(dtype_, source.cols());
  std::vector<float> row(static_cast<size_t>(source.cols()));
  for (int64_t i = 0; i < source.rows(); ++i) {
    source.dequantise_row(i, row.data());
    if (!std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); })) {
      throw Error(ErrorCode::non_finite, {.where = fmt::format("{}, row {}", linear->name, i),
                                          .expected = "finite weights",
                                          .got = "NaN or infinity",
                                          .advice = {}});
    }
    quantise(dtype_, row.data(), source.cols(), blocks.data<std::byte>() + i * row_bytes);
  }
  auto made = std::make_shared<Linear>();
  made->name = linear->name;
  made->matrix = PackedMatrix::pack(blocks, pool_);
  made->bias = linear->bias;
  made->fine_activations = linear->fine_activations;
  return known = made;
}

namespace {

/// The experts of a mixture; its router keeps its type, since a score that is a little off is another choice.
void quantise_experts(Program& program, MixtureUse& use, WeightQuantiser& quantiser) {
  for (int32_t i = 0; i < use.experts; ++i) {
    for (const int32_t map : use.expert(i)) {
      auto& weight = std::get<std::shared_ptr<const Linear>>(program.constants[static_cast<size_t>(map)].weight);
      weight = quantiser(weight);
    }
  }
  use.mixture = gather_mixture(program, use);
}

}  // namespace

void quantise_weights(Program& program, WeightQuantiser& quantiser) {
  // A table that is also a head stays as a table, and the head becomes a constant of its own.
  std::vector<bool> is_table(program.constants.size(), false);
  for (const Node& node : program.nodes) {
    if (node.op == OpKind::embedding) is_table[static_cast<size_t>(node.get<WeightUse>().constant)] = true;
  }
  std::map<int32_t, int32_t> heads;  // constant of a table -> of the head made from it
  for (Node& node : program.nodes) {
    if (node.op == OpKind::moe) quantise_experts(program, std::get<MixtureUse>(node.attributes), quantiser);
    if (node.op != OpKind::linear) continue;
    int32_t& use = std::get<WeightUse>(node.attributes).constant;
    auto& weight = std::get<std::shared_ptr<const Linear>>(program.constants[static_cast<size_t>(use)].weight);
    if (!is_table[static_cast<size_t>(use)]) {
      weight = quantiser(weight);
      continue;
    }
    const auto [found, is_new] = heads.emplace(use, static_cast<int32_t>(program.constants.size()));
    if (is_new) {
      Constant head{.name = program.constants[static_cast<size_t>(use)].name + ".head", .weight = quantiser(weight)};
      program.constants.push_back(std::move(head));
    }
    use = found->second;
  }
}

Program trim_to_prefill(const Program& main) {
  for (const ProgramState& state : main.states) {
    if (!state.is_ring()) continue;
    throw Error(ErrorCode::unsupported,
                {.where = "prefill from a trimmed main",
                 .expected = "a program without sliding rings (a full-attention model, or the embeddings path)",
                 .got = fmt::format("{}, a ring of {} slots that main writes before it reads it: with more than one "
                                    "token the step's own first queries would miss keys",
                                    state.name, state.capacity),
                 .advice = "use eager mode, which traces prefill by itself"});
  }
  Program prefill = main;
  prefill.name = "prefill";
  prefill.outputs.clear();
  prefill.hidden = -1;
  remove_dead_nodes(prefill);
  return prefill;
}

}  // namespace slipring
