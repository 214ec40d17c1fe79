#include "program/parse.h"

#include <charconv>
#include <fmt/format.h>
#include <map>

#include <slipring/error.h>

#include "program/text_line.h"
#include "program/verify.h"

namespace slipring {
namespace {

constexpr int64_t kMost = int64_t{1} << 31;  ///< of any size in a program; products of two fit int64
constexpr size_t kMostStates = 4096;
constexpr int64_t kMostExperts = 1024;
constexpr size_t kMostFrequencies = 4096;

class Parser {
 public:
  Parser(WeightsFile& weights, const std::string& where) : weights_(weights), where_(where) {}

  Program run(std::string_view text) {
    int number = 0;
    while (!text.empty()) {
      const size_t stop = std::min(text.find('\n'), text.size());
      TextLine line(text.substr(0, stop), where_, ++number);
      text.remove_prefix(std::min(stop + 1, text.size()));
      if (!line.done() && !line.take("#")) statement(line);
    }
    if (program_.name.empty()) TextLine("", where_, number).fail("\"program\"");
    verify(program_);
    return std::move(program_);
  }

 private:
  void statement(TextLine& line) {
    if (program_.name.empty()) {
      header(line);
    } else if (line.take("const ")) {
      constant(line);
    } else if (line.take("rope ")) {
      rope(line);
    } else if (line.take("state ")) {
      state(line);
    } else if (line.take("hidden ")) {
      program_.hidden = value(line);
      line.end();
    } else if (line.take("output ")) {
      std::string name = line.quoted();
      program_.outputs.push_back({.name = std::move(name), .value = value(line)});
      line.end();
    } else {
      node(line);
    }
  }

  void header(TextLine& line) {
    line.expect("program");
    program_.name = line.quoted();
    if (program_.name.empty()) line.fail("a name");
    line.expect("mode");
    const std::string mode = line.word();
    if (mode != "main" && mode != "prefill") line.fail("main or prefill");
    program_.mode = mode == "main" ? StepMode::main : StepMode::prefill;
    line.end();
  }

  void numbered(TextLine& line, char letter, size_t number) { line.expect(fmt::format("{}{}", letter, number)); }

  void constant(TextLine& line) {
    numbered(line, 'c', program_.constants.size());
    const std::string kind = line.word();
    Constant constant{.name = line.quoted(), .weight = Tensor()};
    const DType dtype = line.dtype();
    line.expect("[");
    const int64_t rows = line.integer(1, kMost);
    const int64_t cols = line.take(",") ? line.integer(1, kMost) : 0;
    line.expect("]");
    const bool bias = line.take("bias");
    const bool fine = line.take("fine");
    line.end();
    if (kind == "linear" && cols > 0) {
      constant.weight = weights_.linear(constant.name, dtype, rows, cols, bias, fine);
    } else if (kind == "norm" && cols == 0) {
      constant.weight = weights_.norm(constant.name, rows);
    } else if (kind == "vector" && cols == 0) {
      constant.weight = weights_.vector(constant.name, rows);
    } else {
      line.fail("a linear map of two dimensions, or a norm or vector of one");
    }
    program_.constants.push_back(std::move(constant));
  }

  void rope(TextLine& line) {
    numbered(line, 'r', program_.ropes.size());
    Rope rope;
    const std::string layout = line.word();
    if (layout != "halves" && layout != "interleaved") line.fail("halves or interleaved");
    rope.layout = layout == "halves" ? RopeLayout::halves : RopeLayout::interleaved;
    line.expect("magnitude");
    rope.magnitude = line.positive();
    line.expect("frequencies");
    while (!line.done() && rope.inverse_frequencies.size() < kMostFrequencies) {
      rope.inverse_frequencies.push_back(line.positive());
    }
    if (rope.inverse_frequencies.empty()) line.fail("at least one frequency");
    line.end();
    program_.ropes.push_back(std::move(rope));
  }

  void state(TextLine& line) {
    ProgramState state;
    state.name = line.word();
    line.expect("layer");
    // States are numbered by layer: a runtime holds one cache a state in that order.
    state.layer = static_cast<int>(
        line.integer(static_cast<int64_t>(program_.states.size()), static_cast<int64_t>(program_.states.size())));
    line.expect("capacity");
    state.capacity = line.integer(0, kMost);
    line.expect("window");
    state.window = line.integer(0, kMost);
    line.expect("heads");
    state.layout.n_kv_heads = static_cast<int>(line.integer(1, 1 << 16));
    line.expect("head_dim");
    state.layout.head_dim = static_cast<int>(line.integer(1, 1 << 16));
    state.layout.dtype = line.dtype();
    if (state.layout.dtype != DType::F32 && state.layout.dtype != DType::F16 && state.layout.dtype != DType::BF16) {
      line.fail("a state of F32, F16 or BF16");
    }
    line.end();
    if (program_.states.size() >= kMostStates || !program_.nodes.empty()) line.fail("states before the first node");
    ProgramValue initial{.type = {.kind = ValueKind::state,
                                  .dtype = state.layout.dtype,
                                  .dims = {state.is_ring() ? SymInt(state.capacity) : offset_dim(),
                                           state.layout.n_kv_heads, state.layout.head_dim}},
                         .state = static_cast<int32_t>(program_.states.size()),
                         .version = 0};
    state.initial = state.final = add_value(line, state.name + "@0", std::move(initial));
    program_.states.push_back(std::move(state));
  }

  ValueId add_value(TextLine& line, const std::string& name, ProgramValue value) {
    const auto id = static_cast<ValueId>(program_.values.size());
    if (!names_.emplace(name, id).second) line.fail(fmt::format("a value other than {}, which is there", name));
    program_.values.push_back(std::move(value));
    return id;
  }
  ValueId value(TextLine& line) { return find(line, line.word()); }
  ValueId find(TextLine& line, const std::string& name) const {
    const auto found = names_.find(name);
    if (found == names_.end()) line.fail(fmt::format("a value that is defined above; {} is not", name));
    return found->second;
  }
  /// "c3" or "r0".
  static int32_t index(TextLine& line, const std::string& word) {
    int32_t number = -1;
    const auto [stop, problem] = std::from_chars(word.data() + 1, word.data() + word.size(), number);
    if (problem != std::errc{} || stop != word.data() + word.size() || number < 0) line.fail("a number behind c or r");
    return number;
  }

  static OpKind op(TextLine& line) {
    const std::string name = line.word();
    for (int kind = 0; kind <= static_cast<int>(OpKind::moe); ++kind) {
      if (to_string(static_cast<OpKind>(kind)) == name) return static_cast<OpKind>(kind);
    }
    line.fail("an op; " + name + " is none");
  }

  void node(TextLine& line) {
    const std::string name = line.word();
    line.expect("=");
    Node node{.op = op(line), .inputs = {}, .output = -1, .attributes = {}};
    int32_t weight = -1;
    line.expect("(");
    for (bool first = true; !line.take(")"); first = false) {
      if (!first) line.expect(",");
      const std::string operand = line.word();
      const bool refers =
          operand.size() > 1 && (operand[0] == 'c' || operand[0] == 'r') && operand.find('@') == std::string::npos;
      if (refers) {
        if (weight >= 0) line.fail("one weight at most");
        weight = index(line, operand);
      } else {
        node.inputs.push_back(find(line, operand));
        if (node.inputs.size() > 3) line.fail("three inputs at most");
      }
    }
    attributes(line, node, weight);
    line.expect(":");
    define(line, name, std::move(node));
  }

  void attributes(TextLine& line, Node& node, int32_t weight) {
    const bool braces = line.take("{");
    switch (node.op) {
      case OpKind::embedding:
      case OpKind::linear:
        node.attributes = WeightUse{weight};
        break;
      case OpKind::input_embeddings:
      case OpKind::columns: {
        const int64_t first = line.field("first", 0, kMost);
        node.attributes = ColumnsUse{.first = first, .count = line.field("count", 1, kMost)};
        break;
      }
      case OpKind::norm: {
        NormUse use{.constant = weight};
        const std::string kind = line.word_field("kind");
        if (kind != "rms" && kind != "layer") line.fail("kind rms or layer");
        use.kind = kind == "rms" ? NormKind::rms : NormKind::layer;
        use.size = line.field("size", 1, kMost);
        use.eps = line.positive_field("eps");
        node.attributes = use;
        break;
      }
      case OpKind::rope:
        node.attributes = RopeUse{.rope = weight, .head_dim = static_cast<int>(line.field("head_dim", 1, 1 << 16))};
        break;
      case OpKind::gated: {
        const std::string kind = line.word_field("activation");
        if (kind != "silu" && kind != "gelu_tanh" && kind != "gelu_erf") line.fail("silu, gelu_tanh or gelu_erf");
        node.attributes = GatedUse{kind == "silu"        ? Activation::silu
                                   : kind == "gelu_tanh" ? Activation::gelu_tanh
                                                         : Activation::gelu_erf};
        break;
      }
      case OpKind::scale:
      case OpKind::softcap:
        node.attributes = FactorUse{line.positive_field("factor")};
        break;
      case OpKind::logit_rows: {
        const std::string rows = line.word_field("rows");
        if (rows != "all" && rows != "last" && rows != "none") line.fail("all, last or none");
        node.attributes = LogitRowsUse{rows == "all"    ? LogitRows::all
                                       : rows == "last" ? LogitRows::last
                                                        : LogitRows::none};
        break;
      }
      case OpKind::write:
        node.attributes = WriteUse{begin(line, node)};
        return;  // the brace is taken
      case OpKind::attention: {
        AttentionUse use;
        use.n_heads = static_cast<int>(line.field("n_heads", 1, 1 << 16));
        use.scale = line.positive_field("scale");
        use.softcap = line.real_field("softcap");
        if (use.softcap < 0) line.fail("a softcap of 0 or more", fmt::format("{}", use.softcap));
        use.window = line.field("window", 0, kMost);
        use.both_ways = line.field("both_ways", 0, 1) == 1;
        use.sinks = weight;
        node.attributes = use;
        break;
      }
      case OpKind::moe: {
        MixtureUse use;
        use.first = weight;
        use.experts = static_cast<int32_t>(line.field("experts", 1, kMostExperts));
        use.per_token = static_cast<int32_t>(line.field("per_token", 1, use.experts));
        use.alpha = line.positive_field("alpha");
        use.limit = line.positive_field("limit");
        try {
          use.mixture = gather_mixture(program_, use);
        } catch (const Error& error) {
          line.fail(error.info().expected, error.info().got);
        }
        node.attributes = std::move(use);
        break;
      }
      default:
        break;
    }
    if (braces) line.expect("}");
  }

  /// There is one right index; its expression is compared as text, so that none is ever parsed.
  SymInt begin(TextLine& line, const Node& node) const {
    line.key("begin");
    const std::string_view given = line.until('}');
    if (node.inputs.empty() || program_.type(node.inputs[0]).kind != ValueKind::state) line.fail("a state to write");
    const ProgramState& state = program_.state_of(node.inputs[0]);
    const SymInt right = state.is_ring() ? state.step().write_begin() : offset_dim();
    if (given != right.to_string()) line.fail("begin=" + right.to_string(), fmt::format("begin={}", given));
    return right;
  }

  void define(TextLine& line, const std::string& name, Node node) {
    ProgramValue result;
    try {
      result.type = infer_type(program_, node);
    } catch (const Error& error) {
      line.fail(error.info().expected, error.info().got);
    }
    if (const std::string_view declared = line.rest(); declared != result.type.to_string()) {
      line.fail(result.type.to_string(), std::string(declared));
    }
    if (result.type.kind != ValueKind::tensor) {
      const ProgramValue& source = program_.values[static_cast<size_t>(node.inputs[0])];
      result.state = source.state;
      result.version = source.version + (node.op == OpKind::write ? 1 : 0);
    }
    const int32_t of = result.state;
    node.output = add_value(line, name, std::move(result));
    if (node.op == OpKind::write) program_.states[static_cast<size_t>(of)].final = node.output;
    program_.nodes.push_back(std::move(node));
  }

  WeightsFile& weights_;
  const std::string& where_;
  Program program_;
  std::map<std::string, ValueId> names_;
};

}  // namespace

Program parse_program(std::string_view text, WeightsFile& weights, const std::string& where) {
  return Parser(weights, where).run(text);
}

}  // namespace slipring
