#include "program/trace_ops.h"

#include <algorithm>
#include <fmt/format.h>

#include <slipring/error.h>

#include "program/verify.h"

namespace slipring {

TraceOps::TraceOps(TraceOptions options) : options_(std::move(options)) {
  program_.name = options_.name;
  program_.mode = options_.mode;
  for (size_t i = 0; i < options_.layers.size(); ++i) {
    const TraceLayer& layer = options_.layers[i];
    if (layer.capacity > 0) ring::check_geometry(layer.capacity, layer.window, "traced ring");
    const auto id = static_cast<ValueId>(program_.values.size());
    program_.values.push_back({.type = {.kind = ValueKind::state,
                                        .dtype = options_.kv_dtype,
                                        .dims = {layer.capacity > 0 ? SymInt(layer.capacity) : offset_dim(),
                                                 layer.n_kv_heads, layer.head_dim}},
                               .state = static_cast<int32_t>(i),
                               .version = 0});
    program_.states.push_back(
        {.name = fmt::format("{}{}.{}", options_.prefix, layer.capacity > 0 ? "ring" : "full", i),
         .layer = static_cast<int>(i),
         .capacity = layer.capacity,
         .window = layer.capacity > 0 ? layer.window : 0,
         .layout = {.n_kv_heads = layer.n_kv_heads, .head_dim = layer.head_dim, .dtype = options_.kv_dtype},
         .initial = id,
         .final = id});
  }
}

void TraceOps::output(std::string name, const Value& value) {
  program_.outputs.push_back({.name = std::move(name), .value = value.id()});
}

void TraceOps::mark_hidden(const Value& value) {
  program_.hidden = value.id();
}

Program TraceOps::finish() {
  remove_dead_nodes(program_);
  verify(program_);
  return std::move(program_);
}

Program trace(TraceOptions options, const std::function<void(TraceOps&)>& body) {
  TraceOps ops(std::move(options));
  body(ops);
  return ops.finish();
}

// ---- recording

ValueId TraceOps::record(OpKind op, std::vector<ValueId> inputs, Attributes attributes) {
  Node node{.op = op, .inputs = std::move(inputs), .output = -1, .attributes = std::move(attributes)};
  ProgramValue result{.type = infer_type(program_, node)};
  if (result.type.kind != ValueKind::tensor) {
    const ProgramValue& source = program_.values[static_cast<size_t>(node.inputs[0])];
    result.state = source.state;
    result.version = source.version + (op == OpKind::write ? 1 : 0);
  }
  node.output = static_cast<ValueId>(program_.values.size());
  program_.values.push_back(std::move(result));
  program_.nodes.push_back(std::move(node));
  return program_.nodes.back().output;
}

int32_t TraceOps::add_constant(const std::string& name, const void* key, Constant constant) {
  const auto found = constants_.find(key);
  if (found != constants_.end()) return found->second;
  // Names come from the model's file; two weights of one name would be one weight in the exported file.
  const auto taken = [this](const std::string& candidate) {
    return std::any_of(program_.constants.begin(), program_.constants.end(),
                       [&](const Constant& other) { return other.name == candidate; });
  };
  // Weights that a family makes itself have no name in the file; they are numbered in the order of their first use.
  const std::string stem = options_.prefix + (name.empty() ? "constant" : name);
  constant.name = stem;
  for (int i = 2; taken(constant.name); ++i) constant.name = fmt::format("{}.{}", stem, i);
  const auto index = static_cast<int32_t>(program_.constants.size());
  program_.constants.push_back(std::move(constant));
  constants_.emplace(key, index);
  return index;
}

template <class Weight>
int32_t TraceOps::constant(const std::string& name, const Weight& weight) {
  return add_constant(name, &weight, {.name = {}, .weight = std::shared_ptr<const Weight>(options_.weights, &weight)});
}

int32_t TraceOps::substituted(const Linear& map) {
  if (!options_.substitute) return constant(map.name, map);
  const auto other = options_.substitute(std::shared_ptr<const Linear>(options_.weights, &map));
  return add_constant(other->name, other.get(), {.name = {}, .weight = other});
}

ProgramState& TraceOps::state(int layer) {
  if (layer < 0 || static_cast<size_t>(layer) >= program_.states.size()) {
    throw Error(ErrorCode::internal, {.where = "trace",
                                      .expected = fmt::format("a layer below {}", program_.states.size()),
                                      .got = std::to_string(layer),
                                      .advice = {}});
  }
  return program_.states[static_cast<size_t>(layer)];
}

// ---- inputs and compute

Value TraceOps::token_ids() {
  return value(OpKind::token_ids, {});
}

Value TraceOps::input_embeddings() {
  if (given_embeddings_) return given_embeddings_;
  return value(OpKind::input_embeddings, {}, ColumnsUse{.first = 0, .count = options_.embedding_cols});
}

Value TraceOps::embedding(const Value& ids, const Linear& table) {
  return value(OpKind::embedding, {ids.id()}, WeightUse{constant(table.name, table)});
}

std::vector<Value> TraceOps::linear(const Value& x, std::span<const Linear* const> maps) {
  std::vector<Value> results;
  for (const Linear* map : maps) {
    results.push_back(value(OpKind::linear, {x.id()}, WeightUse{substituted(*map)}));
  }
  return results;
}

Value TraceOps::norm(Value x, const Norm& norm) {
  return value(OpKind::norm, {x.id()},
               NormUse{.constant = norm.weight.empty() ? -1 : constant(norm.name, norm),
                       .kind = norm.kind,
                       .size = norm.size,
                       .eps = norm.eps});
}

Value TraceOps::rope(Value x, const Rope& rope, int head_dim) {
  auto found = std::find(program_.ropes.begin(), program_.ropes.end(), rope);
  if (found == program_.ropes.end()) found = program_.ropes.insert(program_.ropes.end(), rope);
  return value(OpKind::rope, {x.id()},
               RopeUse{.rope = static_cast<int32_t>(found - program_.ropes.begin()), .head_dim = head_dim});
}

Value TraceOps::gated(Activation activation, Value gate, const Value& up) {
  return value(OpKind::gated, {gate.id(), up.id()}, GatedUse{activation});
}

Value TraceOps::sigmoid_gate(Value x, const Value& gate) {
  return value(OpKind::sigmoid_gate, {x.id(), gate.id()});
}

Value TraceOps::add(Value a, const Value& b) {
  return value(OpKind::add, {a.id(), b.id()});
}

Value TraceOps::scale(Value x, float factor) {
  return value(OpKind::scale, {x.id()}, FactorUse{factor});
}

Value TraceOps::softcap(Value x, float cap) {
  return value(OpKind::softcap, {x.id()}, FactorUse{cap});
}

Value TraceOps::columns(const Value& x, int64_t first, int64_t count) {
  return value(OpKind::columns, {x.id()}, ColumnsUse{.first = first, .count = count});
}

Value TraceOps::moe(const Value& x, const Mixture& mixture) {
  MixtureUse use{.first = constant(mixture.router.name, mixture.router),
                 .experts = static_cast<int32_t>(mixture.experts.size()),
                 .per_token = mixture.experts_per_token,
                 .alpha = mixture.alpha,
                 .limit = mixture.limit,
                 .mixture = nullptr};
  int32_t next = use.first;
  for (const Expert& expert : mixture.experts) {
    for (const Linear* map : {&expert.gate, &expert.up, &expert.down}) {
      const int32_t index = substituted(*map);
      if (index == ++next) continue;
      throw Error(ErrorCode::internal, {.where = "trace of a mixture",
                                        .expected = "maps that are used nowhere else",
                                        .got = map->name,
                                        .advice = {}});
    }
  }
  use.mixture = gather_mixture(program_, use);
  return value(OpKind::moe, {x.id()}, std::move(use));
}

Value TraceOps::logit_rows(const Value& x) {
  return value(OpKind::logit_rows, {x.id()}, LogitRowsUse{options_.logits});
}

void TraceOps::tap(int layer, const Value& x) {
  if (std::find(options_.taps.begin(), options_.taps.end(), layer) == options_.taps.end()) return;
  output(tap_name(layer), x);
}

// ---- caches

KVHandle TraceOps::fetch_and_concat(int layer, const Value& k, const Value& v) {
  return {record(OpKind::concat, {state(layer).final, k.id(), v.id()})};
}

void TraceOps::update(int layer, const Value& k, const Value& v) {
  ProgramState& cache = state(layer);
  const SymInt begin = cache.is_ring() ? cache.step().write_begin() : offset_dim();
  const ValueId next = record(OpKind::write, {cache.final, k.id(), v.id()}, WriteUse{begin});
  cache.final = next;
}

KVHandle TraceOps::update_and_fetch(int layer, const Value& k, const Value& v) {
  update(layer, k, v);
  return {record(OpKind::read, {state(layer).final})};
}

Value TraceOps::attention(const Value& q, KVHandle kv, const AttentionSpec& spec) {
  int32_t sinks = -1;
  if (!spec.sinks.empty()) {
    const int layer = program_.state_of(kv.id).layer;
    sinks =
        add_constant(fmt::format("attention_sinks.{}", layer), spec.sinks.raw(), {.name = {}, .weight = spec.sinks});
  }
  return value(OpKind::attention, {q.id(), kv.id},
               AttentionUse{.n_heads = spec.n_heads,
                            .scale = spec.scale,
                            .softcap = spec.softcap,
                            .window = spec.window,
                            .both_ways = spec.both_ways,
                            .sinks = sinks});
}

}  // namespace slipring
