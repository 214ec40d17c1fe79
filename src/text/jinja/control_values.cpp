#include "text/jinja/control_values.h"

namespace slipring::jinja {

class Loop::Method : public Object {
 public:
  Method(Loop& loop, bool cycle) : loop_(loop), cycle_(cycle), alive_(loop.alive_) {}
  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value call(Renderer& renderer, const Arguments& arguments) override {
    if (alive_.expired()) refuse(kTemplate, "a loop that is running", "a method of one that has ended");
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

Value Macro::call(Renderer& renderer, const Arguments& arguments) {
  const Renderer::CallLevel level(renderer);
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_.lock();
  if (scope->parent == nullptr)
    refuse(kTemplate, "a macro whose block is still open", "one that was carried out of it");
  bind(renderer, arguments, scope);
  return renderer.make_string(renderer.render_text(stmt_.body, scope));
}

void Macro::bind(Renderer& renderer, const Arguments& arguments, const std::shared_ptr<Scope>& scope) const {
  const auto& parameters = stmt_.parameters;
  // Each name that is given is looked for among the parameters.
  renderer.work(16 * arguments.named.size() * parameters.size());
  renderer.charge(0, (parameters.size() + arguments.named.size()) * kEntryBytes);
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
  scope->names.try_emplace("varargs", renderer.make_tuple(std::move(rest)));
  scope->names.try_emplace("kwargs", renderer.make_dict(std::move(named)));
  scope->names.try_emplace("caller", Value::undefined("caller"));
}

}  // namespace slipring::jinja
