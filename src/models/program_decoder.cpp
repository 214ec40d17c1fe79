#include "models/program_decoder.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include <slipring/error.h>

#include "program/replay.h"
#include "program/verify.h"

namespace slipring {
namespace {

[[noreturn]] void fail(const std::string& where, std::string expected, std::string got) {
  throw Error(ErrorCode::bad_file,
              {.where = where, .expected = std::move(expected), .got = std::move(got), .advice = {}});
}

ValueId find_output(const Program& program, std::string_view name) {
  for (const ProgramOutput& output : program.outputs) {
    if (output.name == name) return output.value;
  }
  fail("program " + program.name, fmt::format("an output \"{}\"", name), "none");
}

const Node* find_node(const Program& program, OpKind op) {
  const auto found =
      std::find_if(program.nodes.begin(), program.nodes.end(), [op](const Node& node) { return node.op == op; });
  return found == program.nodes.end() ? nullptr : &*found;
}

class ProgramDecoder final : public Decoder {
 public:
  ProgramDecoder(ModelSpec spec, DecoderPrograms programs) : programs_(std::move(programs)) {
    spec_ = std::move(spec);
    check(programs_.main, StepMode::main);
    check(programs_.prefill, StepMode::prefill);
    if (programs_.embed) verify(*programs_.embed);
    read_layers();
    find_table();
    read_weights();
  }

  Value embed(Ops& ops) const override {
    if (ops.has_embeddings()) return ops.input_embeddings();
    const Program& program = programs_.embed ? *programs_.embed : programs_.main;
    if (!programs_.embed) {
      throw Error(ErrorCode::unsupported, {.where = "bundle",
                                           .expected = "an embed program",
                                           .got = "none",
                                           .advice = "export the model with --embeddings"});
    }
    Replay replay(program, ops);
    const ValueId result = find_output(program, "inputs_embeds");
    replay.run_to(result);
    return replay.value(result);
  }

  Value forward(Ops& ops) const override {
    const Program& program = program_for(ops);
    Replay replay(program, ops);
    const Node* input = find_node(program, OpKind::input_embeddings);
    if (input != nullptr && !ops.has_embeddings()) replay.set(input->output, embed(ops));
    replay.run_to(program.hidden);
    return replay.value(program.hidden);
  }

  Value logits(Ops& ops, const Value& hidden) const override {
    const Program& program = program_for(ops);
    Replay replay(program, ops);
    replay.set(program.hidden, hidden);
    replay.skip_past(program.hidden);
    const ValueId result = find_output(program, "logits");
    replay.run_to(result);
    return replay.value(result);
  }

  const Linear& embedding_table() const override { return *table_; }
  bool is_program() const override { return true; }

 private:
  const Program& program_for(const Ops& ops) const {
    return ops.mode() == StepMode::main ? programs_.main : programs_.prefill;
  }

  /// What comes after the hidden states may use nothing but them, since logits() is given nothing else.
  static void check(const Program& program, StepMode mode) {
    const std::string where = "program " + program.name;
    verify(program);
    if (program.mode != mode) fail(where, mode == StepMode::main ? "mode main" : "mode prefill", "the other");
    if (program.hidden < 0) fail(where, "hidden states and logits", "none");
    const ValueId result = find_output(program, "logits");
    std::set<ValueId> head{program.hidden};
    bool behind = false;
    for (const Node& node : program.nodes) {
      if (behind) {
        for (const ValueId input : node.inputs) {
          if (head.count(input) == 0) fail(where, "a head that uses the hidden states only", program.value_name(input));
        }
        head.insert(node.output);
      }
      behind = behind || node.output == program.hidden;
    }
    if (head.count(result) == 0) fail(where, "logits made of the hidden states", "others");
  }

  void read_layers() {
    const std::vector<ProgramState>& states = programs_.main.states;
    const std::vector<ProgramState>& others = programs_.prefill.states;
    spec_.layers.clear();
    if (states.size() != others.size()) fail("bundle", "the same states in main and prefill", "others");
    for (size_t i = 0; i < states.size(); ++i) {
      const ProgramState& state = states[i];
      if (state.capacity != others[i].capacity || state.window != others[i].window ||
          !(state.layout == others[i].layout)) {
        fail("bundle", "the same states in main and prefill", "another " + state.name);
      }
      if (state.capacity != state.window) {
        throw Error(ErrorCode::unsupported,
                    {.where = "bundle",
                     .expected = "rings as large as their window",
                     .got = fmt::format("{} slots for a window of {}", state.capacity, state.window),
                     .advice = {}});
      }
      spec_.layers.push_back({.kind = state.is_ring() ? LayerKind::sliding : LayerKind::full,
                              .window = state.window,
                              .n_kv_heads = state.layout.n_kv_heads,
                              .head_dim = state.layout.head_dim});
    }
    if (spec_.layers.empty()) fail("bundle", "at least one state", "none");
    const SymInt vocab = programs_.main.type(find_output(programs_.main, "logits")).dims[1];
    const SymInt hidden = programs_.main.type(programs_.main.hidden).dims[1];
    if (vocab.value() != spec_.vocab_size || hidden.value() != spec_.hidden_size) {
      fail("bundle", fmt::format("vocabulary {} and hidden size {}", spec_.vocab_size, spec_.hidden_size),
           fmt::format("{} and {}", vocab.to_string(), hidden.to_string()));
    }
  }

  void find_table() {
    const Program& program = programs_.embed ? *programs_.embed : programs_.main;
    const Node* lookup = find_node(program, OpKind::embedding);
    if (lookup == nullptr) fail("program " + program.name, "an embedding table", "none");
    table_ = &program.linear(lookup->get<WeightUse>().constant);
    if (table_->out_features() < spec_.vocab_size) {
      fail("embedding table", fmt::format("{} rows", spec_.vocab_size), std::to_string(table_->out_features()));
    }
  }

  void read_weights() {
    fingerprint_ = 0xcbf29ce484222325ULL;
    std::set<const Linear*> seen;
    for (const Constant& constant : programs_.main.constants) {
      const auto* linear = std::get_if<std::shared_ptr<const Linear>>(&constant.weight);
      if (linear == nullptr || !seen.insert(linear->get()).second) continue;
      weight_bytes_ += (*linear)->matrix.bytes();
      std::vector<float> row(static_cast<size_t>((*linear)->in_features()));
      (*linear)->matrix.dequantise_row(0, row.data());
      for (const std::byte b : std::as_bytes(std::span(row))) {
        fingerprint_ = (fingerprint_ ^ std::to_integer<uint64_t>(b)) * 0x100000001b3ULL;
      }
    }
  }

  DecoderPrograms programs_;
  const Linear* table_ = nullptr;
};

}  // namespace

std::shared_ptr<const Decoder> make_program_decoder(ModelSpec spec, DecoderPrograms programs) {
  return std::make_shared<ProgramDecoder>(std::move(spec), std::move(programs));
}

}  // namespace slipring
