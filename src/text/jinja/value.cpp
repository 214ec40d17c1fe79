#include "text/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <slipring/error.h>

#include "text/jinja/renderer.h"

namespace slipring::jinja {
namespace {

// Lists and dictionaries cannot hold themselves, but namespaces can, and a template may nest lists in a loop.
constexpr int kMaxPrintDepth = 200;

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const double magnitude = std::fabs(value);
  const bool scientific = magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value,
                                    scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string text(buffer, result.ptr);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

// repr() of a string: single quotes unless only those would need escaping.
std::string quoted(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      constexpr char kHex[] = "0123456789abcdef";
      out += "\\x";
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[static_cast<unsigned char>(c) & 15];
    } else {
      out += c;
    }
  }
  return out + quote;
}

void check_growth(size_t size, size_t max_bytes, int depth) {
  if (size > max_bytes || depth > kMaxPrintDepth) {
    throw Error(ErrorCode::invalid_argument, {.where = "chat template",
                                              .expected = "at most " + std::to_string(max_bytes) + " bytes and " +
                                                          std::to_string(kMaxPrintDepth) + " levels",
                                              .got = "a value that prints to more"});
  }
}

void append_repr(const Value& value, std::string& out, size_t max_bytes, int depth);

void append_items(const List& list, std::string& out, size_t max_bytes, int depth) {
  out += list.tuple ? '(' : '[';
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(list.items[i], out, max_bytes, depth + 1);
  }
  if (list.tuple && list.items.size() == 1) out += ',';
  out += list.tuple ? ')' : ']';
}

void append_text(const Value& value, std::string& out, size_t max_bytes, int depth) {
  check_growth(out.size(), max_bytes, depth);
  if (value.is_undefined()) return;
  if (value.is_none()) {
    out += "None";
  } else if (value.is_boolean()) {
    out += value.as_bool() ? "True" : "False";
  } else if (value.is_integer()) {
    out += std::to_string(value.as_integer());
  } else if (value.is_float()) {
    out += python_float(value.as_double());
  } else if (value.is_string()) {
    out += value.text();
  } else if (value.is_list()) {
    append_items(value.items(), out, max_bytes, depth);
  } else if (value.is_dict()) {
    out += '{';
    bool first = true;
    for (const auto& [key, entry] : value.entries().entries) {
      if (!first) out += ", ";
      first = false;
      out += quoted(key) + ": ";
      append_repr(entry, out, max_bytes, depth + 1);
    }
    out += '}';
  } else {
    out += '<';
    out += value.object().type_name();
    out += '>';
  }
  check_growth(out.size(), max_bytes, depth);
}

void append_repr(const Value& value, std::string& out, size_t max_bytes, int depth) {
  if (value.is_string()) {
    out += quoted(value.text());
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else {
    append_text(value, out, max_bytes, depth);
  }
}

bool less_lists(Renderer& renderer, const List& a, const List& b) {
  const size_t shared = std::min(a.items.size(), b.items.size());
  for (size_t i = 0; i < shared; ++i) {
    if (!equal(renderer, a.items[i], b.items[i])) return less(renderer, a.items[i], b.items[i]);
  }
  return a.items.size() < b.items.size();
}

}  // namespace

const Value* Arguments::find(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::optional<Value> Object::attribute(std::string_view) {
  return std::nullopt;
}

Value Object::call(Renderer&, const Arguments&) {
  throw Error(ErrorCode::invalid_argument,
              {.where = "chat template", .expected = "something that can be called", .got = std::string(type_name())});
}

namespace {

int checked_depth(int depth) {
  if (depth <= kMaxValueDepth) return depth;
  throw Error(ErrorCode::invalid_argument, {.where = "chat template",
                                            .expected = "values at most " + std::to_string(kMaxValueDepth) + " deep",
                                            .got = "a deeper one"});
}

std::shared_ptr<const List> make_items(std::vector<Value> items, bool tuple) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return std::make_shared<const List>(List{std::move(items), tuple, checked_depth(depth + 1)});
}

}  // namespace

Value Value::undefined(std::string_view name) {
  return Value(Data(Undefined{std::make_shared<const std::string>(clipped(name, kMaxUndefinedName))}));
}

std::string_view Value::undefined_name() const {
  const auto& name = std::get<Undefined>(data_).name;
  return name != nullptr ? std::string_view(*name) : std::string_view();
}

Value Value::list(std::vector<Value> items) {
  return Value(Data(make_items(std::move(items), false)));
}
Value Value::tuple(std::vector<Value> items) {
  return Value(Data(make_items(std::move(items), true)));
}
Value Value::dict(Dict dict) {
  checked_depth(dict.depth());
  return Value(Data(std::make_shared<const Dict>(std::move(dict))));
}

int Value::depth() const {
  return is_list() ? items().depth : is_dict() ? entries().depth() : is_object() ? object().depth() : 0;
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_float()) return as_double() != 0;
  if (is_number()) return as_integer() != 0;
  if (is_string()) return !text().empty();
  if (is_list()) return !items().items.empty();
  if (is_dict()) return !entries().entries.empty();
  return true;
}

std::string_view Value::type_name() const {
  if (is_undefined()) return "undefined";
  if (is_none()) return "none";
  if (is_boolean()) return "boolean";
  if (is_integer()) return "integer";
  if (is_float()) return "float";
  if (is_string()) return "string";
  if (is_list()) return items().tuple ? "tuple" : "list";
  if (is_dict()) return "dict";
  return object().type_name();
}

void Dict::set(std::string key, Value value) {
  depth_ = std::max(depth_, value.depth() + 1);
  const auto [place, added] = index_.try_emplace(key, entries.size());
  if (added) {
    entries.emplace_back(std::move(key), std::move(value));
  } else {
    entries[place->second].second = std::move(value);
  }
}

const Value* Dict::find(std::string_view key) const {
  const auto place = index_.find(std::string(key));
  return place == index_.end() ? nullptr : &entries[place->second].second;
}

bool equal(Renderer& renderer, const Value& a, const Value& b) {
  renderer.work(0);
  if (a.is_number() && b.is_number()) {
    return a.is_float() || b.is_float() ? a.as_double() == b.as_double() : a.as_integer() == b.as_integer();
  }
  if (a.is_string() && b.is_string()) {
    if (a.text().size() != b.text().size()) return false;
    renderer.work(a.text().size());
    return a.text() == b.text();
  }
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_list() && b.is_list()) {
    const List& left = a.items();
    const List& right = b.items();
    if (left.tuple != right.tuple || left.items.size() != right.items.size()) return false;
    for (size_t i = 0; i < left.items.size(); ++i) {
      if (!equal(renderer, left.items[i], right.items[i])) return false;
    }
    return true;
  }
  if (a.is_dict() && b.is_dict()) {
    if (a.entries().entries.size() != b.entries().entries.size()) return false;
    for (const auto& [key, value] : a.entries().entries) {
      renderer.work(key.size());
      const Value* other = b.entries().find(key);
      if (other == nullptr || !equal(renderer, value, *other)) return false;
    }
    return true;
  }
  return a.is_object() && b.is_object() && &a.object() == &b.object();
}

bool less(Renderer& renderer, const Value& a, const Value& b) {
  renderer.work(0);
  if (a.is_number() && b.is_number()) {
    return a.is_float() || b.is_float() ? a.as_double() < b.as_double() : a.as_integer() < b.as_integer();
  }
  if (a.is_string() && b.is_string()) {
    // UTF-8 bytes sort as their code points do.
    renderer.work(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();
  }
  if (a.is_list() && b.is_list()) return less_lists(renderer, a.items(), b.items());
  throw Error(ErrorCode::invalid_argument, {.where = "chat template",
                                            .expected = "two numbers, two strings or two lists to compare",
                                            .got = std::string(a.type_name()) + " and " + std::string(b.type_name())});
}

std::string_view clipped(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0U) == 0x80) --bytes;
  return text.substr(0, bytes);
}

std::string to_text(const Value& value, size_t max_bytes) {
  std::string out;
  append_text(value, out, max_bytes, 0);
  return out;
}

}  // namespace slipring::jinja
