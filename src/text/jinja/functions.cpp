// Functions that every template finds, and what access to values means.
#include <array>

#include "text/jinja/builtins.h"
#include "text/jinja/text_search.h"
#include "text/jinja/utf8.h"

namespace slipring::jinja {
namespace {

// jinja2's sandbox has the same limit.
constexpr int64_t kMaxRange = 100'000;

class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "namespace"; }
  std::optional<Value> attribute(std::string_view name) override {
    const Value* value = values.find(name);
    return value != nullptr ? std::optional<Value>(*value) : std::nullopt;
  }
  void clear() override { values = Dict(); }
  Dict values;
};

class Function : public Object {
 public:
  using Body = Value (*)(Renderer&, const Arguments&);
  explicit Function(Body body) : body_(body) {}
  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Renderer& renderer, const Arguments& arguments) override { return body_(renderer, arguments); }

 private:
  Body body_;
};

// joiner(): nothing the first time, the separator afterwards. cycler(...): the values in turn.
class Joiner : public Object {
 public:
  explicit Joiner(std::string separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "joiner"; }
  bool callable() const override { return true; }
  Value call(Renderer& renderer, const Arguments&) override {
    const bool first = !used_;
    used_ = true;
    return renderer.make_string(first ? "" : separator_);
  }

 private:
  std::string separator_;
  bool used_ = false;
};

Value make_namespace(Renderer& renderer, const Arguments& arguments) {
  auto object = std::make_shared<Namespace>();
  if (!arguments.positional.empty() && arguments.positional[0].is_dict()) {
    renderer.charge_entries(arguments.positional[0].entries());
    for (const auto& [name, value] : arguments.positional[0].entries().entries) object->values.set(name, value);
  }
  renderer.charge(0, arguments.named.size() * kEntryBytes);
  for (const auto& [name, value] : arguments.named) object->values.set(name, value);
  // All namespaces live as long as the rendering: their price keeps them few.
  renderer.charge(4096);
  renderer.remember(object);
  return Value::object(std::move(object));
}

Value make_dict(Renderer& renderer, const Arguments& arguments) {
  Dict dict;
  if (!arguments.positional.empty() && arguments.positional[0].is_dict()) {
    renderer.charge_entries(arguments.positional[0].entries());
    dict = arguments.positional[0].entries();
  }
  renderer.charge(0, arguments.named.size() * kEntryBytes);
  for (const auto& [name, value] : arguments.named) dict.set(name, value);
  return renderer.make_dict(std::move(dict));
}

Value make_range(Renderer& renderer, const Arguments& arguments) {
  const size_t given = arguments.positional.size();
  if (given == 0 || given > 3) refuse("range", "one to three integers", std::to_string(given));
  const int64_t start = given > 1 ? integer_argument(arguments, 0, "start", 0) : 0;
  const int64_t stop = integer_argument(arguments, given > 1 ? 1 : 0, "stop", 0);
  const int64_t step = integer_argument(arguments, 2, "step", 1);
  if (step == 0) refuse("range", "a step other than 0", "0");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) {
      refuse("range", "at most " + std::to_string(kMaxRange) + " numbers", "more");
    }
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return renderer.make_list(std::move(items));
}

Value raise_exception(Renderer& renderer, const Arguments& arguments) {
  const Value* message = arguments.find(0, "message");
  refuse("chat template", "", message != nullptr ? renderer.text_of(*message) : "refused");
}

Value strftime_now(Renderer& renderer, const Arguments& arguments) {
  const std::string format = text_argument(arguments, 0, "format", "%Y-%m-%d");
  if (format.size() > 256) refuse("strftime_now", "a format of at most 256 bytes", std::to_string(format.size()));
  std::tm local{};
  const std::time_t now = renderer.now();
  localtime_r(&now, &local);
  // A leading blank tells an empty result from a failure.
  std::array<char, 4096> buffer{};
  const size_t size = std::strftime(buffer.data(), buffer.size(), (" " + format).c_str(), &local);
  return renderer.make_string(size > 0 ? std::string(buffer.data() + 1, size - 1) : "");
}

Value make_joiner(Renderer& renderer, const Arguments& arguments) {
  std::string separator = text_argument(arguments, 0, "sep", ", ");
  renderer.charge(separator.size(), kObjectBytes);
  return Value::object(std::make_shared<Joiner>(std::move(separator)));
}

}  // namespace

void add_functions(Scope& scope) {
  const auto add = [&scope](const char* name, Function::Body body) {
    scope.names.insert_or_assign(name, Value::object(std::make_shared<Function>(body)));
  };
  add("namespace", make_namespace);
  add("dict", make_dict);
  add("range", make_range);
  add("raise_exception", raise_exception);
  add("strftime_now", strftime_now);
  add("joiner", make_joiner);
}

void set_namespace_attribute(Renderer& renderer, const Value& object, const std::string& name, const Value& value) {
  auto* target = object.is_object() ? dynamic_cast<Namespace*>(&object.object()) : nullptr;
  if (target == nullptr) {
    refuse("chat template", "a namespace to set the attribute '" + name + "' on", std::string(object.type_name()));
  }
  renderer.work(name.size());
  const size_t before = target->values.entries.size();
  target->values.set(name, value);
  if (target->values.entries.size() > before) renderer.charge(2 * name.size(), kEntryBytes);
}

Value get_attribute(Renderer& renderer, const Value& object, const std::string& name) {
  if (object.is_undefined()) {
    refuse("chat template", "a value with the attribute '" + name + "'",
           "'" + std::string(object.undefined_name()) + "', which is undefined");
  }
  if (object.is_object()) {
    renderer.work(name.size());
    auto value = object.object().attribute(name);
    // A method of the loop, made for this place.
    if (value && value->is_object()) renderer.charge(0, kObjectBytes);
    return value ? *value : renderer.make_undefined(name);
  }
  if (auto method = find_method(renderer, object, name)) return *method;
  if (!object.is_dict()) return renderer.make_undefined(name);
  renderer.work(name.size());
  const Value* value = object.entries().find(name);
  return value != nullptr ? *value : renderer.make_undefined(name);
}

Value get_item(Renderer& renderer, const Value& object, const Value& key) {
  if (object.is_undefined()) {
    refuse("chat template", "a value to take an item from",
           "'" + std::string(object.undefined_name()) + "', which is undefined");
  }
  if (key.is_string()) renderer.work(key.text().size());
  if (object.is_dict() && key.is_string()) {
    const Value* value = object.entries().find(key.text());
    if (value != nullptr) return *value;
  } else if ((object.is_list() || object.is_string()) && (key.is_integer() || key.is_boolean())) {
    std::optional<Letters> letters;
    if (object.is_string()) letters.emplace(renderer, object.text());
    const auto size = static_cast<int64_t>(letters ? letters->size() : object.items().items.size());
    int64_t index = key.as_integer();
    if (index < 0) index += size;
    if (index < 0 || index >= size) return renderer.make_undefined("item " + std::to_string(key.as_integer()));
    return letters ? renderer.make_string(std::string((*letters)[static_cast<size_t>(index)]))
                   : object.items().items[static_cast<size_t>(index)];
  } else if (object.is_object() && key.is_string()) {
    auto value = object.object().attribute(key.text());
    if (value) return *value;
  }
  if (!key.is_string()) return renderer.make_undefined(std::string(key.type_name()) + " item");
  if (auto method = find_method(renderer, object, key.text())) return *method;
  return renderer.make_undefined(key.text());
}

std::vector<Value> iterate(Renderer& renderer, const Value& value) {
  std::vector<Value> items;
  if (value.is_list()) {
    renderer.charge(value.items().items.size() * sizeof(Value));
    items = value.items().items;
  } else if (value.is_dict()) {
    for (const auto& entry : value.entries().entries) renderer.add_string(items, entry.first);
  } else if (value.is_string()) {
    const std::string_view text = value.text();
    renderer.charge(text.size() * sizeof(Value));
    for (size_t end = 0; end < text.size();) {
      const size_t begin = end;
      next_code_point(text, end);
      renderer.add_string(items, text.substr(begin, end - begin));
    }
  } else if (!value.is_undefined()) {
    refuse("chat template", "something to go through", std::string(value.type_name()));
  }
  return items;
}

bool contains(Renderer& renderer, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) refuse("chat template", "a string to look for in a string", std::string(item.type_name()));
    return find_text(renderer, container.text(), item.text()) != std::string::npos;
  }
  if (container.is_dict()) {
    if (item.is_string()) renderer.work(item.text().size());
    return item.is_string() && container.entries().find(item.text()) != nullptr;
  }
  if (container.is_list()) {
    for (const Value& candidate : container.items().items) {
      if (equal(renderer, candidate, item)) return true;
    }
    return false;
  }
  if (container.is_undefined()) return false;
  refuse("chat template", "a string, list or dictionary after 'in'", std::string(container.type_name()));
}

int64_t integer_argument(const Arguments& arguments, size_t index, std::string_view name, int64_t fallback) {
  const Value* value = arguments.find(index, name);
  if (value == nullptr || value->is_none()) return fallback;
  if (!value->is_integer() && !value->is_boolean()) {
    refuse("chat template", "an integer for '" + std::string(name) + "'", std::string(value->type_name()));
  }
  return value->as_integer();
}

bool flag_argument(const Arguments& arguments, size_t index, std::string_view name, bool fallback) {
  const Value* value = arguments.find(index, name);
  return value != nullptr ? value->truthy() : fallback;
}

std::string text_argument(const Arguments& arguments, size_t index, std::string_view name,
                          const std::string& fallback) {
  const Value* value = arguments.find(index, name);
  if (value == nullptr) return fallback;
  if (!value->is_string()) {
    refuse("chat template", "a string for '" + std::string(name) + "'", std::string(value->type_name()));
  }
  return value->text();
}

}  // namespace slipring::jinja
