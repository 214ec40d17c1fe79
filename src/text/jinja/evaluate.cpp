// The renderer's half that evaluates expressions.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/renderer.h"

namespace slipring::jinja {

Value Renderer::lookup(const std::string& name, const ScopePtr& scope) {
  // The name is hashed anew on each level. A level costs less than a step does, so that four of them count as one.
  for (const Scope* level = scope.get(); level != nullptr; level = level->parent.get()) {
    if (name.size() > 64) work(name.size());
    if (++levels_searched_ % 4 == 0) work(0);
    const auto place = level->names.find(name);
    if (place != level->names.end()) return place->second;
  }
  return make_undefined(name);
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
  const std::string where = std::string(kTemplate) + " line " + std::to_string(expr.line);
  if (callee.is_undefined())
    refuse(where, "something that can be called", "'" + std::string(callee.undefined_name()) + "', which is undefined");
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
      return make_tuple(std::move(items));
    }
    case Expr::Kind::dict: {
      Dict dict;
      for (size_t i = 0; i < expr.parts.size(); i += 2) {
        const Value key = evaluate(*expr.parts[i], scope);
        if (!key.is_string()) refuse(kTemplate, "strings as the keys of a dictionary", std::string(key.type_name()));
        charge(2 * key.text().size(), kEntryBytes);
        dict.set(key.text(), evaluate(*expr.parts[i + 1], scope));
      }
      return make_dict(std::move(dict));
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
      if (!value.is_number()) refuse(kTemplate, "a number after '" + expr.text + "'", std::string(value.type_name()));
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
    const std::vector<Value>& front = left.items().items;
    const std::vector<Value>& back = right.items().items;
    charge((front.size() + back.size()) * sizeof(Value), kListBytes);
    std::vector<Value> items;
    items.reserve(front.size() + back.size());
    items.insert(items.end(), front.begin(), front.end());
    items.insert(items.end(), back.begin(), back.end());
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
    return value.is_undefined() ? "'" + std::string(value.undefined_name()) + "', which is undefined"
                                : std::string(value.type_name());
  };
  refuse(std::string(kTemplate) + " line " + std::to_string(expr.line), "operands that fit '" + expr.text + "'",
         describe(left) + " and " + describe(right));
}

Value Renderer::comparison(const Expr& expr, const ScopePtr& scope) {
  Value left = evaluate(*expr.parts[0], scope);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    const Value right = evaluate(*expr.parts[i + 1], scope);
    const std::string& op = expr.operators[i];
    bool holds = false;
    if (op == "==" || op == "!=") {
      holds = equal(*this, left, right) == (op == "==");
    } else if (op == "in" || op == "not in") {
      holds = contains(*this, right, left) == (op == "in");
    } else if (op == "<") {
      holds = less(*this, left, right);
    } else if (op == ">") {
      holds = less(*this, right, left);
    } else {
      holds = (op == "<=" ? less(*this, left, right) : less(*this, right, left)) || equal(*this, left, right);
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
      refuse(kTemplate, "integers in a slice", std::string(bound.type_name()));
    bounds[i] = bound.as_integer();
  }
  if (object.is_undefined()) return Value();
  if (!object.is_string() && !object.is_list())
    refuse(kTemplate, "a string or list to slice", std::string(object.type_name()));
  const int64_t step = bounds[2].value_or(1);
  if (step == 0) refuse(kTemplate, "a slice step other than 0", "0");
  std::optional<Letters> letters;
  if (object.is_string()) letters.emplace(*this, object.text());
  const auto size = static_cast<int64_t>(letters ? letters->size() : object.items().items.size());
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
    if (letters) {
      text += (*letters)[static_cast<size_t>(i)];
    } else {
      items.push_back(object.items().items[static_cast<size_t>(i)]);
    }
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (object.is_string()) return make_string(std::move(text));
  return object.items().tuple ? make_tuple(std::move(items)) : make_list(std::move(items));
}

}  // namespace slipring::jinja
