// Filters of text and of numbers.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/filters.h"
#include "text/jinja/utf8.h"

namespace slipring::jinja {
namespace {

// ---- text
Value filter_trim(Renderer& renderer, const Value& input, const Arguments& arguments) {
  const Value* wanted = arguments.find(0, "chars");
  const bool given = wanted != nullptr && wanted->is_string();
  return renderer.make_string(strip(renderer, renderer.text_of(input), given ? &wanted->text() : nullptr, true, true));
}
Value filter_upper(Renderer& renderer, const Value& input, const Arguments&) {
  return renderer.make_string(ascii_case(renderer.text_of(input), true));
}
Value filter_lower(Renderer& renderer, const Value& input, const Arguments&) {
  return renderer.make_string(ascii_case(renderer.text_of(input), false));
}
Value filter_capitalize(Renderer& renderer, const Value& input, const Arguments&) {
  return renderer.make_string(capitalize(renderer.text_of(input)));
}
Value filter_title(Renderer& renderer, const Value& input, const Arguments&) {
  return renderer.make_string(title(renderer.text_of(input)));
}
Value filter_string(Renderer& renderer, const Value& input, const Arguments&) {
  return input.is_string() ? input : renderer.make_string(renderer.text_of(input));
}
Value filter_safe(Renderer&, const Value& input, const Arguments&) {
  return input;
}
Value filter_escape(Renderer& renderer, const Value& input, const Arguments&) {
  std::string out;
  for (const char c : renderer.text_of(input)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return renderer.make_string(std::move(out));
}
Value filter_replace(Renderer& renderer, const Value& input, const Arguments& arguments) {
  return renderer.make_string(replace_all(renderer, renderer.text_of(input), text_argument(arguments, 0, "old", ""),
                                          text_argument(arguments, 1, "new", ""),
                                          integer_argument(arguments, 2, "count", -1)));
}
Value filter_indent(Renderer& renderer, const Value& input, const Arguments& arguments) {
  const Value* width = arguments.find(0, "width");
  const int64_t spaces = width != nullptr && width->is_string() ? 0 : integer_argument(arguments, 0, "width", 4);
  if (spaces < 0 || spaces > 1000) refuse("indent", "a width from 0 to 1000", std::to_string(spaces));
  const std::string margin =
      width != nullptr && width->is_string() ? width->text() : std::string(static_cast<size_t>(spaces), ' ');
  const bool first = flag_argument(arguments, 1, "first", false);
  const bool blank = flag_argument(arguments, 2, "blank", false);
  const std::string text = renderer.text_of(input);
  std::string out;
  bool line_start = true;
  size_t line = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (line_start && (line > 0 ? blank || text[i] != '\n' : first)) {
      out += margin;
      if (out.size() > renderer.limits().output_bytes) renderer.charge(out.size());
    }
    line_start = text[i] == '\n';
    if (line_start) ++line;
    out += text[i];
  }
  return renderer.make_string(std::move(out));
}
Value filter_wordcount(Renderer& renderer, const Value& input, const Arguments&) {
  int64_t words = 0;
  bool inside = false;
  const std::string text = renderer.text_of(input);
  for (size_t at = 0; at < text.size();) {
    const bool space = is_space(next_code_point(text, at));
    if (!space && !inside) ++words;
    inside = !space;
  }
  return Value::integer(words);
}

// ---- numbers
Value filter_int(Renderer& renderer, const Value& input, const Arguments& arguments) {
  const Value* fallback = arguments.find(0, "default");
  const Value otherwise = fallback != nullptr ? *fallback : Value::integer(0);
  if (input.is_integer() || input.is_boolean()) return Value::integer(input.as_integer());
  double value = 0;
  if (input.is_float()) {
    value = input.as_double();
  } else if (input.is_string()) {
    const std::string text = strip(renderer, input.text(), nullptr, true, true);
    int64_t whole = 0;
    const char* begin = text.data() + (text.size() > 1 && text[0] == '+' ? 1 : 0);
    const auto parsed =
        std::from_chars(begin, text.data() + text.size(), whole,
                        static_cast<int>(std::clamp<int64_t>(integer_argument(arguments, 1, "base", 10), 2, 36)));
    if (!text.empty() && parsed.ec == std::errc() && parsed.ptr == text.data() + text.size())
      return Value::integer(whole);
    const auto floating = std::from_chars(begin, text.data() + text.size(), value);
    if (text.empty() || floating.ec != std::errc() || floating.ptr != text.data() + text.size()) return otherwise;
  } else {
    return otherwise;
  }
  if (!std::isfinite(value) || std::fabs(value) >= 9.2e18) return otherwise;
  return Value::integer(static_cast<int64_t>(value));
}
Value filter_float(Renderer& renderer, const Value& input, const Arguments& arguments) {
  const Value* fallback = arguments.find(0, "default");
  if (input.is_number()) return Value::number(input.as_double());
  if (input.is_string()) {
    const std::string text = strip(renderer, input.text(), nullptr, true, true);
    double value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (!text.empty() && parsed.ec == std::errc() && parsed.ptr == text.data() + text.size())
      return Value::number(value);
  }
  return fallback != nullptr ? *fallback : Value::number(0);
}
Value filter_abs(Renderer&, const Value& input, const Arguments&) {
  if (!input.is_number()) refuse("abs", "a number", std::string(input.type_name()));
  if (input.is_float()) return Value::number(std::fabs(input.as_double()));
  if (input.as_integer() == INT64_MIN) refuse("abs", "an integer of 64 bits", "a larger result");
  return Value::integer(std::abs(input.as_integer()));
}
Value filter_round(Renderer&, const Value& input, const Arguments& arguments) {
  if (!input.is_number()) refuse("round", "a number", std::string(input.type_name()));
  const int64_t precision = std::clamp<int64_t>(integer_argument(arguments, 0, "precision", 0), -300, 300);
  const std::string method = text_argument(arguments, 1, "method", "common");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_double() * scale;
  // Python rounds halves to even; "ceil" and "floor" are jinja2's.
  const double rounded = method == "ceil"    ? std::ceil(scaled)
                         : method == "floor" ? std::floor(scaled)
                                             : std::nearbyint(scaled);
  return Value::number(std::isfinite(scaled) && scale != 0 ? rounded / scale : input.as_double());
}

constexpr std::array kScalarFilters = std::to_array<FilterEntry>({
    {"abs", filter_abs},
    {"capitalize", filter_capitalize},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"float", filter_float},
    {"indent", filter_indent},
    {"int", filter_int},
    {"lower", filter_lower},
    {"replace", filter_replace},
    {"round", filter_round},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", filter_title},
    {"trim", filter_trim},
    {"upper", filter_upper},
    {"wordcount", filter_wordcount},
});

}  // namespace

std::span<const FilterEntry> scalar_filters() {
  return kScalarFilters;
}

}  // namespace slipring::jinja
