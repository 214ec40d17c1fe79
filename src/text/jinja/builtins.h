// What a template finds without defining it: filters, tests, methods, functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/renderer.h"
#include "text/jinja/value.h"

namespace slipring::jinja {

/// @throws Error{invalid_argument} for an unknown filter or arguments it does not take
Value apply_filter(Renderer& renderer, std::string_view name, const Value& input, const Arguments& arguments);
bool apply_test(Renderer& renderer, std::string_view name, const Value& input, const Arguments& arguments);

/// `object.name`: a method of the value's type first, then an entry of that name.
Value get_attribute(Renderer& renderer, const Value& object, const std::string& name);
/// `object[key]`: an entry first, then a method.
Value get_item(Renderer& renderer, const Value& object, const Value& key);
/// Items of a list, keys of a dictionary, characters of a string, nothing of undefined.
std::vector<Value> iterate(Renderer& renderer, const Value& value);
/// Python's `in`.
bool contains(Renderer& renderer, const Value& container, const Value& item);

/// A bound method of a string, list or dictionary, if it has one of that name.
std::optional<Value> find_method(Renderer& renderer, const Value& object, const std::string& name);

/// namespace, range, dict, raise_exception, strftime_now, joiner, cycler
void add_functions(Scope& scope);

/// Attributes of a namespace() value. @throws if `object` is not one
void set_namespace_attribute(Renderer& renderer, const Value& object, const std::string& name, const Value& value);

// ---- text helpers that filters and methods share
std::string strip(Renderer& renderer, const std::string& text, const std::string* characters, bool left, bool right);
std::string replace_all(Renderer& renderer, const std::string& text, const std::string& from, const std::string& to,
                        int64_t count);
std::string ascii_case(std::string text, bool upper);
std::string capitalize(const std::string& text);
std::string title(const std::string& text);
size_t count_characters(std::string_view text);

/// The code points of a text by their number. The text outlives this.
class Letters {
 public:
  Letters(Renderer& renderer, std::string_view text);
  size_t size() const noexcept { return starts_.empty() ? text_.size() : starts_.size(); }
  /// The bytes of one.
  std::string_view operator[](size_t index) const;

 private:
  std::string_view text_;
  std::vector<uint32_t> starts_;  // empty where each is a single byte
};

/// The integer of an argument, `fallback` where it is absent. @throws for another type
int64_t integer_argument(const Arguments& arguments, size_t index, std::string_view name, int64_t fallback);
bool flag_argument(const Arguments& arguments, size_t index, std::string_view name, bool fallback);
std::string text_argument(const Arguments& arguments, size_t index, std::string_view name, const std::string& fallback);

}  // namespace slipring::jinja
