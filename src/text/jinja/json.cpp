#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include <slipring/error.h>

#include "formats/json_check.h"
#include "text/jinja/utf8.h"
#include "text/jinja/value.h"

namespace slipring::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, size_t max_bytes) : style_(style), max_bytes_(max_bytes) {}

  void write(const Value& value, int level) {
    if (out_.size() > max_bytes_ || level > kMaxJsonDepth * 2) {
      throw Error(ErrorCode::invalid_argument, {.where = "chat template: tojson",
                                                .expected = "at most " + std::to_string(max_bytes_) + " bytes",
                                                .got = "a value that is larger or nests deeper"});
    }
    if (value.is_none()) {
      out_ += "null";
    } else if (value.is_boolean()) {
      out_ += value.as_bool() ? "true" : "false";
    } else if (value.is_float() && !std::isfinite(value.as_double())) {
      out_ += std::isnan(value.as_double()) ? "NaN" : value.as_double() < 0 ? "-Infinity" : "Infinity";
    } else if (value.is_number()) {
      out_ += to_text(value, max_bytes_);
    } else if (value.is_string()) {
      write_string(value.text());
    } else if (value.is_list()) {
      write_list(value.items(), level);
    } else if (value.is_dict()) {
      write_dict(value.entries(), level);
    } else {
      throw Error(ErrorCode::invalid_argument, {.where = "chat template: tojson",
                                                .expected = "a value that JSON can hold",
                                                .got = std::string(value.type_name())});
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void line_break(int level) {
    if (style_.indent < 0) return;
    out_ += '\n';
    out_.append(static_cast<size_t>(style_.indent) * static_cast<size_t>(level), ' ');
  }
  void write_list(const List& list, int level) {
    out_ += '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      line_break(level + 1);
      write(list.items[i], level + 1);
    }
    if (!list.items.empty()) line_break(level);
    out_ += ']';
  }
  void write_dict(const Dict& dict, int level) {
    std::vector<const std::pair<std::string, Value>*> entries;
    entries.reserve(dict.entries.size());
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
    }
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      line_break(level + 1);
      write_string(entries[i]->first);
      out_ += style_.key_separator;
      write(entries[i]->second, level + 1);
    }
    if (!entries.empty()) line_break(level);
    out_ += '}';
  }
  void write_unit(uint32_t unit) {
    constexpr char kHex[] = "0123456789abcdef";
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_ += kHex[(unit >> shift) & 15];
  }
  void write_string(const std::string& text) {
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      const auto c = static_cast<unsigned char>(text[at]);
      if (c < 0x80) {
        ++at;
        switch (c) {
          case '"':
            out_ += "\\\"";
            break;
          case '\\':
            out_ += "\\\\";
            break;
          case '\n':
            out_ += "\\n";
            break;
          case '\r':
            out_ += "\\r";
            break;
          case '\t':
            out_ += "\\t";
            break;
          case '\b':
            out_ += "\\b";
            break;
          case '\f':
            out_ += "\\f";
            break;
          default:
            if (c < 0x20) {
              write_unit(c);
            } else {
              out_ += static_cast<char>(c);
            }
        }
        continue;
      }
      const size_t start = at;
      const uint32_t code = next_code_point(text, at);
      if (!style_.ensure_ascii) {
        out_.append(text, start, at - start);
      } else if (code < 0x10000) {
        write_unit(code);
      } else {
        write_unit(0xd800 + ((code - 0x10000) >> 10));
        write_unit(0xdc00 + ((code - 0x10000) & 0x3ff));
      }
    }
    out_ += '"';
  }

  const JsonStyle& style_;
  size_t max_bytes_;
  std::string out_;
};

// Depth is bounded by the check below before this recursion can be deep.
Value convert(const nlohmann::ordered_json& json) {
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return Value::boolean(json.get<bool>());
    case Type::number_integer:
      return Value::integer(json.get<int64_t>());
    case Type::number_unsigned: {
      const auto value = json.get<uint64_t>();
      return value > INT64_MAX ? Value::number(static_cast<double>(value))
                               : Value::integer(static_cast<int64_t>(value));
    }
    case Type::number_float:
      return Value::number(json.get<double>());
    case Type::string:
      return Value::string(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(convert(item));
      return Value::list(std::move(items));
    }
    case Type::object: {
      Dict dict;
      for (const auto& [key, value] : json.items()) dict.set(key, convert(value));
      return Value::dict(std::move(dict));
    }
    default:
      return Value::none();
  }
}

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style, size_t max_bytes) {
  JsonWriter writer(style, max_bytes);
  writer.write(value, 0);
  return writer.take();
}

Value from_json(std::string_view text) {
  const JsonShape shape = check_json(text, {.max_depth = kMaxJsonDepth, .max_keys = kMaxJsonKeys});
  if (!shape.fits()) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "JSON",
                 .expected = shape.too_deep ? "at most " + std::to_string(kMaxJsonDepth) + " levels"
                                            : "at most " + std::to_string(kMaxJsonKeys) + " keys in one object",
                 .got = shape.too_deep ? "deeper nesting" : "more"});
  }
  try {
    return convert(nlohmann::ordered_json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::invalid_argument, {.where = "JSON", .got = error.what()});
  }
}

}  // namespace slipring::jinja
