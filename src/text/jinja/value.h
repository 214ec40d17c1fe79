// Values of the template language: JSON's, with tuples, undefined names and callable objects beside them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace slipring::jinja {

class Value;
class Renderer;

/// Arguments of a call, in order, then by name.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  /// Argument `index`, or the one called `name`, or nothing. None counts as given.
  const Value* find(size_t index, std::string_view name) const;
};

/// What is neither data nor text: namespaces, macros, methods, the loop variable. Compared by identity.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  /// Value of an attribute, or nothing if there is none.
  virtual std::optional<Value> attribute(std::string_view name);
  virtual bool callable() const { return false; }
  /// @throws Error{invalid_argument} unless callable()
  virtual Value call(Renderer& renderer, const Arguments& arguments);
  /// Lets go of all values held.
  virtual void clear() {}
  /// Levels of lists and dictionaries below, as for Value::depth().
  virtual int depth() const { return 0; }
};

struct List;
struct Dict;

/// Immutable but for namespaces; copies share. Semantics are those of Python's jinja2 with its default Undefined.
class Value {
 public:
  /// A name or key that is not there: empty as text, false as a condition, an error in arithmetic.
  struct Undefined {
    std::shared_ptr<const std::string> name;
  };
  using StringPtr = std::shared_ptr<const std::string>;
  using ListPtr = std::shared_ptr<const List>;
  using DictPtr = std::shared_ptr<const Dict>;
  using ObjectPtr = std::shared_ptr<Object>;

  Value() : data_(Undefined{}) {}
  /// @param name  for messages; cut to kMaxUndefinedName bytes
  static Value undefined(std::string_view name);
  static Value none() { return Value(Data(nullptr)); }
  static Value boolean(bool value) { return Value(Data(value)); }
  static Value integer(int64_t value) { return Value(Data(value)); }
  static Value number(double value) { return Value(Data(value)); }
  static Value string(std::string value) { return Value(Data(std::make_shared<const std::string>(std::move(value)))); }
  /// These three throw Error{invalid_argument} for a value deeper than kMaxValueDepth.
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value dict(Dict dict);
  static Value object(ObjectPtr object) { return Value(Data(std::move(object))); }

  bool is_undefined() const noexcept { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const noexcept { return std::holds_alternative<std::nullptr_t>(data_); }
  bool is_boolean() const noexcept { return std::holds_alternative<bool>(data_); }
  bool is_integer() const noexcept { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const noexcept { return std::holds_alternative<double>(data_); }
  bool is_number() const noexcept { return is_boolean() || is_integer() || is_float(); }
  bool is_string() const noexcept { return std::holds_alternative<StringPtr>(data_); }
  bool is_list() const noexcept { return std::holds_alternative<ListPtr>(data_); }
  bool is_dict() const noexcept { return std::holds_alternative<DictPtr>(data_); }
  bool is_object() const noexcept { return std::holds_alternative<ObjectPtr>(data_); }

  /// Each is to be called only where the matching is_...() holds.
  std::string_view undefined_name() const;
  const std::string& text() const { return *std::get<StringPtr>(data_); }
  const List& items() const { return *std::get<ListPtr>(data_); }
  const Dict& entries() const { return *std::get<DictPtr>(data_); }
  Object& object() const { return *std::get<ObjectPtr>(data_); }
  bool as_bool() const { return std::get<bool>(data_); }
  /// Booleans are 0 and 1, as in Python.
  int64_t as_integer() const { return is_boolean() ? (as_bool() ? 1 : 0) : std::get<int64_t>(data_); }
  double as_double() const { return is_float() ? std::get<double>(data_) : static_cast<double>(as_integer()); }

  bool truthy() const;
  /// Levels of lists and dictionaries, this one included: what destroying it recurses into. At most kMaxValueDepth.
  int depth() const;
  /// "string", "list", ... for messages.
  std::string_view type_name() const;

 private:
  using Data = std::variant<Undefined, std::nullptr_t, bool, int64_t, double, StringPtr, ListPtr, DictPtr, ObjectPtr>;
  explicit Value(Data data) : data_(std::move(data)) {}
  Data data_;
};

struct List {
  std::vector<Value> items;
  bool tuple = false;
  int depth = 1;
};

/// String keys in the order of their first insertion.
struct Dict {
  std::vector<std::pair<std::string, Value>> entries;

  /// Replaces the value of a key that is there.
  void set(std::string key, Value value);
  const Value* find(std::string_view key) const;
  int depth() const noexcept { return depth_; }

 private:
  int depth_ = 1;
  std::unordered_map<std::string, size_t> index_;
};

/// Python's `==`. Numbers compare by value whatever their type. The renderer is charged for each value looked at: lists
/// that share their items are small in memory and without end to walk.
bool equal(Renderer& renderer, const Value& a, const Value& b);
/// Python's `<`. @throws Error{invalid_argument} for types without an order
bool less(Renderer& renderer, const Value& a, const Value& b);

/// Text of a value as `{{ value }}` prints it: str() of Python, empty for undefined.
/// Throws Error{invalid_argument} when it grows past `max_bytes` or nests too deep.
std::string to_text(const Value& value, size_t max_bytes);

/// How tojson writes, as json.dumps takes it.
struct JsonStyle {
  int indent = -1;  ///< spaces a level; negative for one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};
/// @throws Error{invalid_argument} for undefined values and objects, or past `max_bytes`
std::string to_json(const Value& value, const JsonStyle& style, size_t max_bytes);
/// @throws Error{invalid_argument} for text that is not JSON nests deeper than kMaxJsonDepth, or has an object of more
/// than kMaxJsonKeys keys
Value from_json(std::string_view text);
inline constexpr int kMaxJsonDepth = 100;
inline constexpr size_t kMaxJsonKeys = 10'000;
/// Deepest nesting of values that a template can build.
inline constexpr int kMaxValueDepth = 150;
/// How much of a name that is not there its message tells, in bytes.
inline constexpr size_t kMaxUndefinedName = 100;
/// The beginning of `text`, at most `bytes` of it and no half character.
std::string_view clipped(std::string_view text, size_t bytes);

}  // namespace slipring::jinja
