#include "text/jinja/renderer.h"

#include <algorithm>
#include <cmath>

#include <slipring/error.h>

#include "text/jinja/builtins.h"

namespace slipring::jinja {
namespace {

constexpr const char* kWhere = "chat template";

// What `loop` is inside a for loop.
class Loop : public Object {
 public:
  explicit Loop(const std::vector<Value>& items) : items_(items) {}
  std::string_view type_name() const override { return "loop"; }
  void advance() { ++round_; }
  int depth() const override {
    int depth = 0;
    for (const Value& item : items_) depth = std::max(depth, item.depth());
    return depth + 1;
  }
  std::optional<Value> attribute(std::string_view name) override;

 private:
  class Method;
  friend class Method;
  int64_t size() const { return static_cast<int64_t>(items_.size()); }

  std::vector<Value> items_;
  int64_t round_ = -1;
  std::optional<std::string> last_changed_;  // as text: a value kept here could hold this loop
  std::shared_ptr<char> alive_ = std::make_shared<char>('\0');
};

class Loop::Method : public Object {
 public:
  Method(Loop& loop, bool cycle) : loop_(loop), cycle_(cycle), alive_(loop.alive_) {}
  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value call(Renderer& renderer, const Arguments& arguments) override {
    if (alive_.expired()) refuse(kWhere, "a loop that is running", "a method of one that has ended");
    if (cycle_) {
      if (arguments.positional.empty()) refuse("loop.cycle", "at least one value", "none");
      return arguments.positional[static_cast<size_t>(loop_.round_) % arguments.positional.size()];
    }
    std::string now = renderer.text_of(Value::tuple(arguments.positional));
    const bool changed = !loop_.last_changed_ || *loop_.last_changed_ != now;
    loop_.last_changed_ = std::move(now);
    return Value::boolean(changed);
  }

 private:
  Loop& loop_;
  bool cycle_;
  std::weak_ptr<char> alive_;
};

class Macro : public Object {
 public:
  Macro(const Stmt& stmt, const std::shared_ptr<Scope>& scope) : stmt_(stmt), scope_(scope) {}
  std::string_view type_name() const override { return "macro"; }
  bool callable() const override { return true; }
  std::optional<Value> attribute(std::string_view name) override {
    if (name == "name") return Value::string(stmt_.text);
    return std::nullopt;
  }
  Value call(Renderer& renderer, const Arguments& arguments) override {
    const Renderer::CallLevel level(renderer);
    auto scope = std::make_shared<Scope>();
    scope->parent = scope_.lock();
    if (scope->parent == nullptr) refuse(kWhere, "a macro whose block is still open", "one that was carried out of it");
    bind(renderer, arguments, scope);
    return renderer.make_string(renderer.render_text(stmt_.body, scope));
  }

 private:
  void bind(Renderer& renderer, const Arguments& arguments, const std::shared_ptr<Scope>& scope) const {
    const auto& parameters = stmt_.parameters;
    std::vector<Value> rest;
    for (size_t i = 0; i < arguments.positional.size(); ++i) {
      if (i < parameters.size()) {
        scope->names.insert_or_assign(parameters[i].name, arguments.positional[i]);
      } else {
        rest.push_back(arguments.positional[i]);
      }
    }
    Dict named;
    for (const auto& [name, value] : arguments.named) {
      bool known = name == "caller";
      for (const Parameter& parameter : parameters) known = known || parameter.name == name;
      if (known) {
        scope->names.insert_or_assign(name, value);
      } else {
        named.set(name, value);
      }
    }
    for (const Parameter& parameter : parameters) {
      if (scope->names.count(parameter.name) != 0) continue;
      scope->names.insert_or_assign(parameter.name, parameter.fallback != nullptr
                                                        ? renderer.evaluate(*parameter.fallback, scope)
                                                        : Value::undefined(parameter.name));
    }
    scope->names.try_emplace("varargs", Value::tuple(std::move(rest)));
    scope->names.try_emplace("kwargs", Value::dict(std::move(named)));
    scope->names.try_emplace("caller", Value::undefined("caller"));
  }

  const Stmt& stmt_;
  // Weak, because the scope holds the macro.
  std::weak_ptr<Scope> scope_;
};

std::optional<Value> Loop::attribute(std::string_view name) {
  if (name == "index") return Value::integer(round_ + 1);
  if (name == "index0") return Value::integer(round_);
  if (name == "revindex") return Value::integer(size() - round_);
  if (name == "revindex0") return Value::integer(size() - round_ - 1);
  if (name == "first") return Value::boolean(round_ == 0);
  if (name == "last") return Value::boolean(round_ == size() - 1);
  if (name == "length") return Value::integer(size());
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem") {
    return round_ > 0 ? items_[static_cast<size_t>(round_) - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return round_ + 1 < size() ? items_[static_cast<size_t>(round_) + 1] : Value::undefined("there is no next item");
  }
  if (name == "cycle" || name == "changed") return Value::object(std::make_shared<Method>(*this, name == "cycle"));
  return std::nullopt;
}

int64_t checked(bool overflow, int64_t value) {
  if (overflow) refuse(kWhere, "integers of 64 bits", "a larger result");
  return value;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) refuse(kWhere, "a divisor other than 0", "0");
  if (b == -1) return checked(a == INT64_MIN, a == INT64_MIN ? 0 : -a);
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) return Value::number(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  // These never overflow, so that no exponent would end the loop below.
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    const bool overflow = __builtin_mul_overflow(result, base, &result);
    checked(overflow, result);
  }
  return Value::integer(result);
}

Value arithmetic(const std::string& op, const Value& a, const Value& b) {
  if (a.is_float() || b.is_float() || op == "/") {
    const double x = a.as_double();
    const double y = b.as_double();
    if (op == "+") return Value::number(x + y);
    if (op == "-") return Value::number(x - y);
    if (op == "*") return Value::number(x * y);
    if (op == "**") return Value::number(std::pow(x, y));
    if (y == 0) refuse(kWhere, "a divisor other than 0", "0");
    if (op == "/") return Value::number(x / y);
    if (op == "//") return Value::number(std::floor(x / y));
    const double rest = std::fmod(x, y);
    return Value::number(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
  }
  const int64_t x = a.as_integer();
  const int64_t y = b.as_integer();
  int64_t result = 0;
  if (op == "//") return Value::integer(floor_divide(x, y));
  if (op == "%") return Value::integer(y == -1 ? 0 : x - floor_divide(x, y) * y);
  if (op == "**") return power(x, y);
  const bool overflow = op == "+"   ? __builtin_add_overflow(x, y, &result)
                        : op == "-" ? __builtin_sub_overflow(x, y, &result)
                                    : __builtin_mul_overflow(x, y, &result);
  return Value::integer(checked(overflow, result));
}

}  // namespace

void refuse(const std::string& where, const std::string& expected, const std::string& got) {
  throw Error(ErrorCode::invalid_argument, {.where = where, .expected = expected, .got = got});
}

Renderer::CallLevel::CallLevel(Renderer& renderer) : renderer_(renderer) {
  if (renderer_.call_depth_ >= renderer_.limits_.call_depth) {
    refuse(kWhere, "calls at most " + std::to_string(renderer_.limits_.call_depth) + " deep", "deeper ones");
  }
  ++renderer_.call_depth_;
}

// Counts a level of the tree walk, which recurses, for as long as it lives.
class Renderer::Level {
 public:
  explicit Level(Renderer& renderer) : renderer_(renderer) {
    if (renderer_.depth_ >= renderer_.limits_.depth) {
      refuse(kWhere, "at most " + std::to_string(renderer_.limits_.depth) + " levels", "more");
    }
    ++renderer_.depth_;
  }
  ~Level() { --renderer_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Renderer& renderer_;
};

Renderer::Renderer(RenderLimits limits, std::time_t now) : limits_(limits), now_(now) {}

Renderer::~Renderer() {
  // A namespace may hold itself, or a chain of older ones. Emptied oldest first, none takes another with it.
  for (const auto& object : remembered_) object->clear();
}

void Renderer::remember(const std::shared_ptr<Object>& object) {
  remembered_.push_back(object);
}

void Renderer::charge(size_t bytes) {
  produced_ += bytes;
  steps_ += 1 + static_cast<int64_t>(bytes / 64);
  if (bytes > limits_.output_bytes || produced_ > limits_.produced_bytes) {
    refuse(kWhere,
           "at most " + std::to_string(limits_.output_bytes) + " bytes at once and " +
               std::to_string(limits_.produced_bytes) + " in all",
           "more");
  }
  if (steps_ > limits_.steps) refuse(kWhere, "at most " + std::to_string(limits_.steps) + " steps", "more");
}

Value Renderer::make_string(std::string text) {
  charge(text.size());
  return Value::string(std::move(text));
}
Value Renderer::make_list(std::vector<Value> items) {
  charge(items.size() * sizeof(Value));
  return Value::list(std::move(items));
}
std::string Renderer::text_of(const Value& value) {
  std::string text = to_text(value, limits_.output_bytes);
  charge(text.size());
  return text;
}

void Renderer::write(std::string& out, const std::string& text) {
  if (text.size() > limits_.output_bytes - std::min(out.size(), limits_.output_bytes)) {
    refuse(kWhere, "at most " + std::to_string(limits_.output_bytes) + " bytes of text", "more");
  }
  out += text;
}

std::string Renderer::render(const Block& block, const Dict& variables) {
  root_ = std::make_shared<Scope>();
  add_functions(*root_);
  for (const auto& [name, value] : variables.entries) root_->names.insert_or_assign(name, value);
  std::string out;
  run(block, root_, out);
  return out;
}

std::string Renderer::render_text(const Block& block, const ScopePtr& scope) {
  std::string out;
  run(block, scope, out);
  return out;
}

Renderer::Flow Renderer::run(const Block& block, const ScopePtr& scope, std::string& out) {
  for (const auto& stmt : block) {
    const Flow flow = run_statement(*stmt, scope, out);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Renderer::Flow Renderer::run_statement(const Stmt& stmt, const ScopePtr& scope, std::string& out) {
  const Level level(*this);
  charge(0);
  const auto inner = [&scope] {
    auto child = std::make_shared<Scope>();
    child->parent = scope;
    return child;
  };
  switch (stmt.kind) {
    case Stmt::Kind::data:
      write(out, stmt.text);
      return Flow::next;
    case Stmt::Kind::output:
      write(out, text_of(evaluate(*stmt.expr, scope)));
      return Flow::next;
    case Stmt::Kind::branch:
      return run(evaluate(*stmt.expr, scope).truthy() ? stmt.body : stmt.otherwise, scope, out);
    case Stmt::Kind::loop:
      return run_loop(stmt, scope, out);
    case Stmt::Kind::set:
      assign(*stmt.target, evaluate(*stmt.expr, scope), scope);
      return Flow::next;
    case Stmt::Kind::set_block:
      assign(*stmt.target, filtered(stmt.expr.get(), render_text(stmt.body, inner()), scope), scope);
      return Flow::next;
    case Stmt::Kind::filter_block:
      write(out, text_of(filtered(stmt.expr.get(), render_text(stmt.body, inner()), scope)));
      return Flow::next;
    case Stmt::Kind::with: {
      const ScopePtr child = inner();
      for (const auto& [target, value] : stmt.assignments) assign(*target, evaluate(*value, scope), child);
      return run(stmt.body, child, out);
    }
    case Stmt::Kind::macro:
      scope->names.insert_or_assign(stmt.text, Value::object(std::make_shared<Macro>(stmt, scope)));
      return Flow::next;
    case Stmt::Kind::call_block: {
      const Value caller = Value::object(std::make_shared<Macro>(stmt, scope));
      write(out, text_of(call(*stmt.expr, scope, &caller)));
      return Flow::next;
    }
    case Stmt::Kind::group:
      return run(stmt.body, inner(), out);
    case Stmt::Kind::loop_break:
      return Flow::leave_loop;
    case Stmt::Kind::loop_continue:
      return Flow::next_round;
  }
  return Flow::next;
}

Renderer::Flow Renderer::run_loop(const Stmt& stmt, const ScopePtr& scope, std::string& out) {
  std::vector<Value> items = iterate(*this, evaluate(*stmt.expr, scope));
  const auto round_scope = [&](const Value& item) {
    auto child = std::make_shared<Scope>();
    child->parent = scope;
    assign(*stmt.target, item, child);
    return child;
  };
  if (stmt.condition != nullptr) {
    std::vector<Value> kept;
    for (const Value& item : items) {
      charge(0);
      if (evaluate(*stmt.condition, round_scope(item)).truthy()) kept.push_back(item);
    }
    items = std::move(kept);
  }
  if (items.empty()) return run(stmt.otherwise, scope, out);
  const auto loop = std::make_shared<Loop>(items);
  const Value loop_value = Value::object(loop);
  for (const Value& item : items) {
    charge(0);
    loop->advance();
    const ScopePtr child = round_scope(item);
    child->names.insert_or_assign("loop", loop_value);
    if (run(stmt.body, child, out) == Flow::leave_loop) break;
  }
  return Flow::next;
}

Value Renderer::filtered(const Expr* filter, std::string text, const ScopePtr& scope) {
  Value value = make_string(std::move(text));
  if (filter == nullptr) return value;
  auto child = std::make_shared<Scope>();
  child->parent = scope;
  child->names.insert_or_assign(kBlockText, std::move(value));
  return evaluate(*filter, child);
}

void Renderer::assign(const Expr& target, const Value& value, const ScopePtr& scope) {
  if (target.kind == Expr::Kind::name) {
    scope->names.insert_or_assign(target.text, value);
  } else if (target.kind == Expr::Kind::attribute) {
    set_namespace_attribute(lookup(target.parts[0]->text, scope), target.text, value);
  } else {
    const std::vector<Value> parts = iterate(*this, value);
    if (parts.size() != target.parts.size()) {
      refuse(kWhere + std::string(" line ") + std::to_string(target.line),
             std::to_string(target.parts.size()) + " values to unpack", std::to_string(parts.size()));
    }
    for (size_t i = 0; i < parts.size(); ++i) assign(*target.parts[i], parts[i], scope);
  }
}

Value Renderer::lookup(const std::string& name, const ScopePtr& scope) const {
  for (const Scope* level = scope.get(); level != nullptr; level = level->parent.get()) {
    const auto place = level->names.find(name);
    if (place != level->names.end()) return place->second;
  }
  return Value::undefined(name);
}

Arguments Renderer::arguments(const Expr& expr, const ScopePtr& scope) {
  Arguments result;
  result.positional.reserve(expr.parts.size() - 1);
  for (size_t i = 1; i < expr.parts.size(); ++i) result.positional.push_back(evaluate(*expr.parts[i], scope));
  for (const auto& [name, value] : expr.named) result.named.emplace_back(name, evaluate(*value, scope));
  return result;
}

Value Renderer::call(const Expr& expr, const ScopePtr& scope, const Value* caller) {
  const Value callee = evaluate(*expr.parts[0], scope);
  Arguments given = arguments(expr, scope);
  if (caller != nullptr) given.named.emplace_back("caller", *caller);
  const std::string where = std::string(kWhere) + " line " + std::to_string(expr.line);
  if (callee.is_undefined())
    refuse(where, "something that can be called", "'" + callee.undefined_name() + "', which is undefined");
  if (!callee.is_object() || !callee.object().callable()) {
    refuse(where, "something that can be called", std::string(callee.type_name()));
  }
  return callee.object().call(*this, given);
}

Value Renderer::evaluate(const Expr& expr, const ScopePtr& scope) {
  const Level level(*this);
  charge(0);
  switch (expr.kind) {
    case Expr::Kind::literal:
      return expr.value;
    case Expr::Kind::name:
      return lookup(expr.text, scope);
    case Expr::Kind::list:
    case Expr::Kind::tuple: {
      std::vector<Value> items;
      items.reserve(expr.parts.size());
      for (const auto& part : expr.parts) items.push_back(evaluate(*part, scope));
      if (expr.kind == Expr::Kind::list) return make_list(std::move(items));
      charge(items.size() * sizeof(Value));
      return Value::tuple(std::move(items));
    }
    case Expr::Kind::dict: {
      Dict dict;
      for (size_t i = 0; i < expr.parts.size(); i += 2) {
        const Value key = evaluate(*expr.parts[i], scope);
        if (!key.is_string()) refuse(kWhere, "strings as the keys of a dictionary", std::string(key.type_name()));
        dict.set(key.text(), evaluate(*expr.parts[i + 1], scope));
      }
      charge(dict.entries.size() * sizeof(Value));
      return Value::dict(std::move(dict));
    }
    case Expr::Kind::attribute:
      return get_attribute(*this, evaluate(*expr.parts[0], scope), expr.text);
    case Expr::Kind::subscript: {
      const Value object = evaluate(*expr.parts[0], scope);
      return get_item(*this, object, evaluate(*expr.parts[1], scope));
    }
    case Expr::Kind::slice:
      return slice(expr, scope);
    case Expr::Kind::call:
      return call(expr, scope, nullptr);
    case Expr::Kind::filter: {
      const Value input = evaluate(*expr.parts[0], scope);
      return apply_filter(*this, expr.text, input, arguments(expr, scope));
    }
    case Expr::Kind::test: {
      const Value input = evaluate(*expr.parts[0], scope);
      return Value::boolean(apply_test(*this, expr.text, input, arguments(expr, scope)) != expr.negate);
    }
    case Expr::Kind::unary: {
      const Value value = evaluate(*expr.parts[0], scope);
      if (expr.text == "not") return Value::boolean(!value.truthy());
      if (!value.is_number()) refuse(kWhere, "a number after '" + expr.text + "'", std::string(value.type_name()));
      return arithmetic(expr.text, Value::integer(0), value);
    }
    case Expr::Kind::binary:
      return binary(expr, scope);
    case Expr::Kind::comparison:
      return comparison(expr, scope);
    case Expr::Kind::conditional:
      if (evaluate(*expr.parts[1], scope).truthy()) return evaluate(*expr.parts[0], scope);
      return expr.parts[2] != nullptr ? evaluate(*expr.parts[2], scope) : Value();
  }
  return Value();
}

Value Renderer::binary(const Expr& expr, const ScopePtr& scope) {
  Value left = evaluate(*expr.parts[0], scope);
  if (expr.text == "and") return left.truthy() ? evaluate(*expr.parts[1], scope) : left;
  if (expr.text == "or") return left.truthy() ? left : evaluate(*expr.parts[1], scope);
  const Value right = evaluate(*expr.parts[1], scope);
  if (expr.text == "~") return make_string(text_of(left) + text_of(right));
  if (left.is_number() && right.is_number()) return arithmetic(expr.text, left, right);
  if (expr.text == "+" && left.is_string() && right.is_string()) return make_string(left.text() + right.text());
  if (expr.text == "+" && left.is_list() && right.is_list() && left.items().tuple == right.items().tuple) {
    std::vector<Value> items = left.items().items;
    charge((items.size() + right.items().items.size()) * sizeof(Value));
    items.insert(items.end(), right.items().items.begin(), right.items().items.end());
    return left.items().tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
  }
  if (expr.text == "*" && (left.is_string() || right.is_string()) && (left.is_integer() || right.is_integer())) {
    const std::string& text = left.is_string() ? left.text() : right.text();
    const int64_t count = std::max<int64_t>(0, (left.is_string() ? right : left).as_integer());
    if (count > 0 && text.size() > limits_.output_bytes / static_cast<size_t>(count)) charge(limits_.output_bytes + 1);
    std::string out;
    for (int64_t i = 0; i < count && !text.empty(); ++i) out += text;
    return make_string(std::move(out));
  }
  const auto describe = [](const Value& value) {
    return value.is_undefined() ? "'" + value.undefined_name() + "', which is undefined"
                                : std::string(value.type_name());
  };
  refuse(std::string(kWhere) + " line " + std::to_string(expr.line), "operands that fit '" + expr.text + "'",
         describe(left) + " and " + describe(right));
}

Value Renderer::comparison(const Expr& expr, const ScopePtr& scope) {
  Value left = evaluate(*expr.parts[0], scope);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    const Value right = evaluate(*expr.parts[i + 1], scope);
    const std::string& op = expr.operators[i];
    if (right.is_string()) charge(right.text().size() / 8);
    bool holds = false;
    if (op == "==" || op == "!=") {
      holds = equal(left, right) == (op == "==");
    } else if (op == "in" || op == "not in") {
      holds = contains(right, left) == (op == "in");
    } else if (op == "<") {
      holds = less(left, right);
    } else if (op == ">") {
      holds = less(right, left);
    } else {
      holds = op == "<=" ? less(left, right) || equal(left, right) : less(right, left) || equal(left, right);
    }
    if (!holds) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

Value Renderer::slice(const Expr& expr, const ScopePtr& scope) {
  const Value object = evaluate(*expr.parts[0], scope);
  std::optional<int64_t> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expr.parts[i + 1] == nullptr) continue;
    const Value bound = evaluate(*expr.parts[i + 1], scope);
    if (bound.is_none()) continue;
    if (!bound.is_integer() && !bound.is_boolean())
      refuse(kWhere, "integers in a slice", std::string(bound.type_name()));
    bounds[i] = bound.as_integer();
  }
  if (object.is_undefined()) return Value();
  if (!object.is_string() && !object.is_list())
    refuse(kWhere, "a string or list to slice", std::string(object.type_name()));
  const int64_t step = bounds[2].value_or(1);
  if (step == 0) refuse(kWhere, "a slice step other than 0", "0");
  std::vector<std::string> letters;
  if (object.is_string()) {
    charge(object.text().size());
    letters = characters(object.text());
  }
  const auto size = static_cast<int64_t>(object.is_string() ? letters.size() : object.items().items.size());
  // Python's rules: negative bounds count from the end, all bounds are clamped.
  const auto clamp = [size, step](int64_t bound) {
    const int64_t low = step < 0 ? -1 : 0;
    const int64_t high = step < 0 ? size - 1 : size;
    if (bound < 0) bound = bound < -size ? low : bound + size;
    return std::min(std::max(bound, low), high);
  };
  const int64_t start = bounds[0] ? clamp(*bounds[0]) : (step < 0 ? size - 1 : 0);
  const int64_t stop = bounds[1] ? clamp(*bounds[1]) : (step < 0 ? -1 : size);
  std::string text;
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (object.is_string()) {
      text += letters[static_cast<size_t>(i)];
    } else {
      items.push_back(object.items().items[static_cast<size_t>(i)]);
    }
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (object.is_string()) return make_string(std::move(text));
  if (!object.items().tuple) return make_list(std::move(items));
  charge(items.size() * sizeof(Value));
  return Value::tuple(std::move(items));
}

}  // namespace slipring::jinja
