#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include <slipring/error.h>
#include <slipring/symint.h>

namespace slipring {

struct SymInt::Node {
  Kind kind = Kind::dimension;
  std::string name;  ///< of a dimension
  SymInt lhs;        ///< of an operation
  SymInt rhs;
};

namespace {

using Kind = SymInt::Kind;

std::string_view symbol(Kind kind) noexcept {
  switch (kind) {
    case Kind::add:
      return "+";
    case Kind::sub:
      return "-";
    case Kind::mul:
      return "*";
    case Kind::floor_div:
      return "/";
    case Kind::mod:
      return "%";
    default:
      return to_string(kind);
  }
}

[[noreturn]] void fail(Kind kind, int64_t a, int64_t b, const char* expected) {
  throw Error(ErrorCode::invalid_argument, {.where = fmt::format("SymInt {}", to_string(kind)),
                                            .expected = expected,
                                            .got = fmt::format("{} {} {}", a, symbol(kind), b),
                                            .advice = {}});
}

/// The one place where an operation is carried out: folding and evaluate() cannot disagree.
int64_t apply(Kind kind, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (kind) {
    case Kind::add:
      if (__builtin_add_overflow(a, b, &result)) fail(kind, a, b, "a result that fits 64 bits");
      return result;
    case Kind::sub:
      if (__builtin_sub_overflow(a, b, &result)) fail(kind, a, b, "a result that fits 64 bits");
      return result;
    case Kind::mul:
      if (__builtin_mul_overflow(a, b, &result)) fail(kind, a, b, "a result that fits 64 bits");
      return result;
    case Kind::floor_div:
    case Kind::mod:
      if (a < 0 || b <= 0) fail(kind, a, b, "a non-negative number and a positive divisor");
      return kind == Kind::mod ? a % b : a / b;
    case Kind::min:
      return std::min(a, b);
    case Kind::max:
      return std::max(a, b);
    case Kind::constant:
    case Kind::dimension:
      break;
  }
  fail(kind, a, b, "an operation");
}

}  // namespace

SymInt SymInt::dimension(std::string name) {
  if (name.empty()) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "SymInt::dimension", .expected = "a name", .got = "an empty string", .advice = {}});
  }
  auto node = std::make_shared<Node>();
  node->name = std::move(name);
  SymInt result;
  result.node_ = std::move(node);
  return result;
}

SymInt SymInt::make(Kind kind, const SymInt& a, const SymInt& b) {
  if (a.is_constant() && b.is_constant()) return apply(kind, a.value_, b.value_);
  // Identities that keep exported graphs free of arithmetic on 0 and 1.
  const auto is = [](const SymInt& x, int64_t constant) { return x.is_constant() && x.value_ == constant; };
  if ((kind == Kind::add || kind == Kind::sub) && is(b, 0)) return a;
  if (kind == Kind::add && is(a, 0)) return b;
  if ((kind == Kind::mul || kind == Kind::floor_div) && is(b, 1)) return a;
  if (kind == Kind::mul && is(a, 1)) return b;
  if ((kind == Kind::floor_div || kind == Kind::mod) && b.is_constant() && b.value_ <= 0) {
    throw Error(ErrorCode::invalid_argument, {.where = fmt::format("SymInt {}", slipring::to_string(kind)),
                                              .expected = "a positive divisor",
                                              .got = fmt::format("{} {} {}", a.to_string(), symbol(kind), b.value_),
                                              .advice = {}});
  }
  auto node = std::make_shared<Node>();
  node->kind = kind;
  node->lhs = a;
  node->rhs = b;
  SymInt result;
  result.node_ = std::move(node);
  return result;
}

SymInt min(const SymInt& a, const SymInt& b) {
  return SymInt::make(SymInt::Kind::min, a, b);
}

SymInt max(const SymInt& a, const SymInt& b) {
  return SymInt::make(SymInt::Kind::max, a, b);
}

SymInt::Kind SymInt::kind() const noexcept {
  return is_constant() ? Kind::constant : node_->kind;
}

int64_t SymInt::value() const {
  if (!is_constant()) {
    throw Error(ErrorCode::invalid_argument, {.where = "SymInt::value",
                                              .expected = "a constant",
                                              .got = "the expression " + to_string(),
                                              .advice = "bind its dimensions with evaluate()"});
  }
  return value_;
}

const std::string& SymInt::name() const {
  return node_->name;
}

const SymInt& SymInt::lhs() const {
  return node_->lhs;
}

const SymInt& SymInt::rhs() const {
  return node_->rhs;
}

int64_t SymInt::evaluate(const DimensionBindings& bindings) const {
  if (is_constant()) return value_;
  if (node_->kind != Kind::dimension) {
    return apply(node_->kind, node_->lhs.evaluate(bindings), node_->rhs.evaluate(bindings));
  }
  const auto found = bindings.find(node_->name);
  if (found == bindings.end()) {
    throw Error(ErrorCode::not_found, {.where = "SymInt::evaluate",
                                       .expected = "a value for every dimension",
                                       .got = "none for " + node_->name,
                                       .advice = {}});
  }
  if (found->second < 0) {
    throw Error(ErrorCode::invalid_argument, {.where = "SymInt::evaluate",
                                              .expected = "a dimension >= 0",
                                              .got = fmt::format("{} = {}", node_->name, found->second),
                                              .advice = {}});
  }
  return found->second;
}

std::string SymInt::to_string() const {
  const auto operand = [](const SymInt& x) {
    const bool infix = x.kind() > Kind::dimension && x.kind() < Kind::min;
    return infix ? fmt::format("({})", x.to_string()) : x.to_string();
  };
  switch (kind()) {
    case Kind::constant:
      return std::to_string(value_);
    case Kind::dimension:
      return node_->name;
    case Kind::min:
    case Kind::max:
      return fmt::format("{}({}, {})", symbol(kind()), lhs().to_string(), rhs().to_string());
    default:
      return fmt::format("{} {} {}", operand(lhs()), symbol(kind()), operand(rhs()));
  }
}

bool SymInt::same_expression(const SymInt& other) const noexcept {
  if (node_ == other.node_) return value_ == other.value_;
  if (kind() != other.kind() || is_constant()) return false;
  if (kind() == Kind::dimension) return node_->name == other.node_->name;
  return lhs().same_expression(other.lhs()) && rhs().same_expression(other.rhs());
}

std::string_view to_string(SymInt::Kind kind) noexcept {
  switch (kind) {
    case Kind::constant:
      return "constant";
    case Kind::dimension:
      return "dimension";
    case Kind::add:
      return "add";
    case Kind::sub:
      return "sub";
    case Kind::mul:
      return "mul";
    case Kind::floor_div:
      return "floor_div";
    case Kind::mod:
      return "mod";
    case Kind::min:
      return "min";
    case Kind::max:
      return "max";
  }
  return "unknown";
}

}  // namespace slipring
