#include "text/jinja/renderer.h"

#include <algorithm>

#include <slipring/error.h>

#include "text/jinja/builtins.h"
#include "text/jinja/control_values.h"

namespace slipring::jinja {
void refuse(const std::string& where, const std::string& expected, const std::string& got) {
  // What a template says with raise_exception() or looks for in vain can be megabytes long.
  constexpr size_t kMaxWords = 4096;
  throw Error(ErrorCode::invalid_argument, {.where = where,
                                            .expected = std::string(clipped(expected, kMaxWords)),
                                            .got = std::string(clipped(got, kMaxWords))});
}

Renderer::CallLevel::CallLevel(Renderer& renderer) : renderer_(renderer) {
  if (renderer_.call_depth_ >= renderer_.limits_.call_depth) {
    refuse(kTemplate, "calls at most " + std::to_string(renderer_.limits_.call_depth) + " deep", "deeper ones");
  }
  ++renderer_.call_depth_;
}

Renderer::Level::Level(Renderer& renderer) : renderer_(renderer) {
  if (renderer_.depth_ >= renderer_.limits_.depth) {
    refuse(kTemplate, "at most " + std::to_string(renderer_.limits_.depth) + " levels", "more");
  }
  ++renderer_.depth_;
}

Renderer::Renderer(RenderLimits limits, std::time_t now, const std::atomic<bool>* stop)
    : limits_(limits), now_(now), stop_(stop) {}

Renderer::~Renderer() {
  // A namespace may hold itself, or a chain of older ones. Emptied oldest first, none takes another with it.
  for (const auto& object : remembered_) object->clear();
}

void Renderer::remember(const std::shared_ptr<Object>& object) {
  remembered_.push_back(object);
}

void Renderer::charge(size_t bytes, size_t beside) {
  produced_ += bytes + beside;
  if (bytes > limits_.output_bytes || produced_ > limits_.produced_bytes) {
    refuse(kTemplate,
           "at most " + std::to_string(limits_.output_bytes) + " bytes at once and " +
               std::to_string(limits_.produced_bytes) + " in all",
           "more");
  }
  count(1 + bytes / 64);
}

void Renderer::work(size_t bytes) {
  count(1 + bytes / 64);
}

void Renderer::count(size_t steps) {
  if (stop_ != nullptr && *stop_) {
    throw Error(ErrorCode::cancelled, {.where = kTemplate, .expected = {}, .got = "a stop while it ran", .advice = {}});
  }
  steps_ += static_cast<int64_t>(steps);
  if (steps_ > limits_.steps) refuse(kTemplate, "at most " + std::to_string(limits_.steps) + " steps", "more");
}

void Renderer::charge_entries(const Dict& dict) {
  size_t bytes = dict.entries.size() * kEntryBytes;
  for (const auto& entry : dict.entries) bytes += 2 * entry.first.size();
  charge(bytes);
}

Value Renderer::make_string(std::string text) {
  charge(text.size(), kStringBytes);
  return Value::string(std::move(text));
}
Value Renderer::make_list(std::vector<Value> items) {
  charge(items.size() * sizeof(Value), kListBytes);
  return Value::list(std::move(items));
}
Value Renderer::make_tuple(std::vector<Value> items) {
  charge(items.size() * sizeof(Value), kListBytes);
  return Value::tuple(std::move(items));
}
Value Renderer::make_dict(Dict dict) {
  charge(0, kDictBytes);
  return Value::dict(std::move(dict));
}
Value Renderer::make_undefined(std::string_view name) {
  charge(0, kStringBytes + std::min(name.size(), kMaxUndefinedName));
  return Value::undefined(name);
}
void Renderer::add_string(std::vector<Value>& items, std::string_view text) {
  if (items.size() >= limits_.output_bytes / sizeof(Value)) charge(limits_.output_bytes + 1);
  charge(text.size(), kStringBytes);
  items.push_back(Value::string(std::string(text)));
}
std::string Renderer::text_of(const Value& value) {
  std::string text = to_text(value, limits_.output_bytes);
  charge(text.size());
  return text;
}

void Renderer::write(std::string& out, const std::string& text) {
  if (text.size() > limits_.output_bytes - std::min(out.size(), limits_.output_bytes)) {
    refuse(kTemplate, "at most " + std::to_string(limits_.output_bytes) + " bytes of text", "more");
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
      charge(0, kEntryBytes + kObjectBytes + stmt.text.size());
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
    work(target.text.size());
    if (scope->names.insert_or_assign(target.text, value).second) charge(0, kEntryBytes + target.text.size());
  } else if (target.kind == Expr::Kind::attribute) {
    set_namespace_attribute(*this, lookup(target.parts[0]->text, scope), target.text, value);
  } else {
    const std::vector<Value> parts = iterate(*this, value);
    if (parts.size() != target.parts.size()) {
      refuse(kTemplate + std::string(" line ") + std::to_string(target.line),
             std::to_string(target.parts.size()) + " values to unpack", std::to_string(parts.size()));
    }
    for (size_t i = 0; i < parts.size(); ++i) assign(*target.parts[i], parts[i], scope);
  }
}

}  // namespace slipring::jinja
