// The values that statements bring into being: `loop`, and macros.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/renderer.h"
#include "text/jinja/value.h"

namespace slipring::jinja {

// What `loop` is inside a for loop.
class Loop : public Object {
 public:
  explicit Loop(const std::vector<Value>& items) : items_(items) {
    for (const Value& item : items_) depth_ = std::max(depth_, item.depth() + 1);
  }
  std::string_view type_name() const override { return "loop"; }
  void advance() { ++round_; }
  int depth() const override { return depth_; }
  std::optional<Value> attribute(std::string_view name) override;

 private:
  class Method;
  friend class Method;
  int64_t size() const { return static_cast<int64_t>(items_.size()); }

  std::vector<Value> items_;
  int depth_ = 1;
  int64_t round_ = -1;
  std::optional<std::string> last_changed_;  // as text: a value kept here could hold this loop
  std::shared_ptr<char> alive_ = std::make_shared<char>('\0');
};

/// A macro, or the body of a call block.
class Macro : public Object {
 public:
  Macro(const Stmt& stmt, const std::shared_ptr<Scope>& scope) : stmt_(stmt), scope_(scope) {}
  std::string_view type_name() const override { return "macro"; }
  bool callable() const override { return true; }
  std::optional<Value> attribute(std::string_view name) override {
    if (name == "name") return Value::string(stmt_.text);
    return std::nullopt;
  }
  Value call(Renderer& renderer, const Arguments& arguments) override;

 private:
  void bind(Renderer& renderer, const Arguments& arguments, const std::shared_ptr<Scope>& scope) const;

  const Stmt& stmt_;
  // Weak, because the scope holds the macro.
  std::weak_ptr<Scope> scope_;
};

}  // namespace slipring::jinja
