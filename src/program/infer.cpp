// The one place that knows what type each op gives: the tracer builds with it, the verifier and the parser check with
// it.
#include <fmt/format.h>

#include <slipring/error.h>

#include "program/program.h"

namespace slipring {
namespace {

class Inference {
 public:
  Inference(const Program& program, const Node& node) : program_(program), node_(node) {}

  ValueType run() const {
    switch (node_.op) {
      case OpKind::token_ids:
        arity(0);
        return {.kind = ValueKind::tensor, .dtype = DType::I32, .dims = {query_len_dim(), 1}};
      case OpKind::input_embeddings:
        arity(0);
        return tensor(query_len_dim(), attribute<ColumnsUse>().count);
      case OpKind::embedding:
        return embedding();
      case OpKind::linear:
        return linear();
      case OpKind::norm:
        return norm();
      case OpKind::rope:
        return rope();
      case OpKind::gated:
      case OpKind::sigmoid_gate:
      case OpKind::add:
        arity(2);
        is_matrix(0);
        require(type(0).same(type(1)), "two values of one shape");
        return type(0);
      case OpKind::scale:
      case OpKind::softcap:
        arity(1);
        is_matrix(0);
        return type(0);
      case OpKind::columns: {
        arity(1);
        const auto& use = attribute<ColumnsUse>();
        require(use.first >= 0 && use.count >= 1 && use.first <= cols(0) - use.count,
                fmt::format("columns {} to {}", use.first, use.first + use.count - 1));
        return tensor(type(0).dims[0], use.count);
      }
      case OpKind::logit_rows:
        return logit_rows();
      case OpKind::concat:
      case OpKind::write:
      case OpKind::read:
        return cache();
      case OpKind::attention:
        return attention();
      case OpKind::moe: {
        arity(1);
        const auto& use = attribute<MixtureUse>();
        require(use.mixture != nullptr, "a mixture's weights");
        const int64_t width = use.mixture->router.in_features();
        require(cols(0) == width, fmt::format("[T, {}] for a mixture", width));
        return type(0);
      }
    }
    throw Error(ErrorCode::internal, {.where = "program", .expected = "an op", .got = "none", .advice = {}});
  }

 private:
  static ValueType tensor(const SymInt& rows, int64_t cols) {
    return {.kind = ValueKind::tensor, .dtype = DType::F32, .dims = {rows, cols}};
  }
  const ValueType& type(size_t input) const { return program_.type(node_.inputs[input]); }
  template <class T>
  const T& attribute() const {
    const T* found = std::get_if<T>(&node_.attributes);
    if (found == nullptr) {
      throw Error(ErrorCode::internal, {.where = fmt::format("program op {}", to_string(node_.op)),
                                        .expected = "its own attributes",
                                        .got = "those of another op",
                                        .advice = {}});
    }
    return *found;
  }
  void require(bool sound, const std::string& expected) const {
    if (sound) return;
    std::string got;
    for (const ValueId input : node_.inputs) {
      got += (got.empty() ? "" : " and ") + program_.type(input).to_string();
    }
    throw Error(ErrorCode::shape_mismatch, {.where = fmt::format("program op {}", to_string(node_.op)),
                                            .expected = expected,
                                            .got = got.empty() ? "no inputs" : got,
                                            .advice = {}});
  }
  void arity(size_t inputs) const { require(node_.inputs.size() == inputs, fmt::format("{} inputs", inputs)); }
  void is_matrix(size_t input) const {
    const ValueType& t = type(input);
    require(t.kind == ValueKind::tensor && t.dtype == DType::F32 && t.dims.size() == 2 && t.dims[1].is_constant(),
            "float32 [rows, columns]");
  }
  int64_t cols(size_t input) const {
    is_matrix(input);
    return type(input).dims[1].value();
  }
  const Linear& weight() const {
    const int32_t constant = attribute<WeightUse>().constant;
    const bool known = constant >= 0 && static_cast<size_t>(constant) < program_.constants.size();
    require(known && std::holds_alternative<std::shared_ptr<const Linear>>(
                         program_.constants[static_cast<size_t>(constant)].weight),
            "a linear map as weight");
    return program_.linear(constant);
  }

  ValueType embedding() const {
    arity(1);
    require(type(0).kind == ValueKind::tensor && type(0).dtype == DType::I32, "token ids");
    return tensor(type(0).dims[0], weight().in_features());
  }
  ValueType linear() const {
    arity(1);
    const Linear& map = weight();
    require(cols(0) == map.in_features(), fmt::format("[T, {}] for {}", map.in_features(), map.name));
    return tensor(type(0).dims[0], map.out_features());
  }
  ValueType norm() const {
    arity(1);
    const auto& use = attribute<NormUse>();
    require(use.size >= 1 && cols(0) % use.size == 0, fmt::format("columns in groups of {}", use.size));
    if (use.constant >= 0) {
      const bool known = static_cast<size_t>(use.constant) < program_.constants.size();
      const auto* weight =
          known
              ? std::get_if<std::shared_ptr<const Norm>>(&program_.constants[static_cast<size_t>(use.constant)].weight)
              : nullptr;
      require(weight != nullptr && (*weight)->weight.elements() == use.size,
              fmt::format("a norm's weight of {}", use.size));
    }
    return type(0);
  }
  ValueType rope() const {
    arity(1);
    const auto& use = attribute<RopeUse>();
    require(use.rope >= 0 && static_cast<size_t>(use.rope) < program_.ropes.size(), "a rope of the program");
    require(use.head_dim >= 1 && cols(0) % use.head_dim == 0 &&
                program_.ropes[static_cast<size_t>(use.rope)].rotary_dim() <= use.head_dim &&
                type(0).dims[0].same_expression(query_len_dim()),
            fmt::format("[query_len, heads of {}]", use.head_dim));
    return type(0);
  }
  ValueType logit_rows() const {
    arity(1);
    const LogitRows rows = attribute<LogitRowsUse>().rows;
    const int64_t width = cols(0);
    require(type(0).dims[0].same_expression(query_len_dim()), "[query_len, columns]");
    return tensor(rows == LogitRows::all ? query_len_dim() : SymInt(rows == LogitRows::last ? 1 : 0), width);
  }
  ValueType cache() const {
    arity(node_.op == OpKind::read ? 1 : 3);
    require(type(0).kind == ValueKind::state, "a state");
    const ProgramState& state = program_.state_of(node_.inputs[0]);
    ValueType result = type(0);
    result.kind = node_.op == OpKind::write ? ValueKind::state : ValueKind::kv;
    if (node_.op == OpKind::read) return result;
    for (const size_t input : {size_t{1}, size_t{2}}) {
      require(cols(input) == state.layout.elements() && type(input).dims[0].same_expression(query_len_dim()),
              fmt::format("keys and values [query_len, {}]", state.layout.elements()));
    }
    if (node_.op == OpKind::concat || !state.is_ring()) result.dims[0] = result.dims[0] + query_len_dim();
    return result;
  }
  ValueType attention() const {
    arity(2);
    const auto& use = attribute<AttentionUse>();
    require(type(1).kind == ValueKind::kv, "keys and values to attend to");
    const KVLayout& layout = program_.state_of(node_.inputs[1]).layout;
    const int64_t width = int64_t{use.n_heads} * layout.head_dim;
    require(use.n_heads >= 1 && use.n_heads % layout.n_kv_heads == 0,
            fmt::format("query heads in groups of {}", layout.n_kv_heads));
    require(cols(0) == width && type(0).dims[0].same_expression(query_len_dim()),
            fmt::format("queries [query_len, {}]", width));
    require(use.window >= 0, "a window >= 0");
    if (use.sinks >= 0) {
      const bool known = static_cast<size_t>(use.sinks) < program_.constants.size();
      const Tensor* sinks =
          known ? std::get_if<Tensor>(&program_.constants[static_cast<size_t>(use.sinks)].weight) : nullptr;
      require(sinks != nullptr && sinks->dtype() == DType::F32 && sinks->elements() == use.n_heads, "sinks [n_heads]");
    }
    return tensor(type(0).dims[0], width);
  }

  const Program& program_;
  const Node& node_;
};

}  // namespace

ValueType infer_type(const Program& program, const Node& node) {
  return Inference(program, node).run();
}

}  // namespace slipring
