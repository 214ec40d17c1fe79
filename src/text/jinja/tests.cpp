// `is` tests.
#include "text/jinja/builtins.h"

namespace slipring::jinja {
namespace {

int64_t whole_number(std::string_view test, const Value& value) {
  if (!value.is_integer() && !value.is_boolean())
    refuse(std::string(test), "an integer", std::string(value.type_name()));
  return value.as_integer();
}

bool is_case(Renderer& renderer, const Value& input, bool upper) {
  if (!input.is_string()) return false;
  renderer.work(input.text().size());
  bool cased = false;
  for (const char c : input.text()) {
    const bool lower_letter = c >= 'a' && c <= 'z';
    const bool upper_letter = c >= 'A' && c <= 'Z';
    if (upper ? lower_letter : upper_letter) return false;
    cased = cased || lower_letter || upper_letter;
  }
  return cased;
}

const Value& operand(std::string_view test, const Arguments& arguments) {
  if (arguments.positional.empty()) refuse(std::string(test), "a value to compare with", "nothing");
  return arguments.positional[0];
}

}  // namespace

bool apply_test(Renderer& renderer, std::string_view name, const Value& input, const Arguments& arguments) {
  if (name == "defined") return !input.is_undefined();
  if (name == "undefined") return input.is_undefined();
  if (name == "none") return input.is_none();
  if (name == "string") return input.is_string();
  if (name == "mapping") return input.is_dict();
  if (name == "iterable") return input.is_list() || input.is_dict() || input.is_string() || input.is_undefined();
  if (name == "sequence") return input.is_list() || input.is_dict() || input.is_string() || input.is_undefined();
  if (name == "number") return input.is_number();
  if (name == "integer") return input.is_integer();
  if (name == "float") return input.is_float();
  if (name == "boolean") return input.is_boolean();
  if (name == "true") return input.is_boolean() && input.as_bool();
  if (name == "false") return input.is_boolean() && !input.as_bool();
  if (name == "callable") return input.is_object() && input.object().callable();
  if (name == "odd") return whole_number(name, input) % 2 != 0;
  if (name == "even") return whole_number(name, input) % 2 == 0;
  if (name == "divisibleby") {
    const int64_t divisor = whole_number(name, operand(name, arguments));
    if (divisor == 0) refuse("divisibleby", "a divisor other than 0", "0");
    return divisor == -1 || whole_number(name, input) % divisor == 0;
  }
  if (name == "eq" || name == "equalto" || name == "==") return equal(renderer, input, operand(name, arguments));
  if (name == "ne" || name == "!=") return !equal(renderer, input, operand(name, arguments));
  if (name == "lt" || name == "lessthan" || name == "<") return less(renderer, input, operand(name, arguments));
  if (name == "gt" || name == "greaterthan" || name == ">") return less(renderer, operand(name, arguments), input);
  if (name == "le" || name == "<=") return !less(renderer, operand(name, arguments), input);
  if (name == "ge" || name == ">=") return !less(renderer, input, operand(name, arguments));
  if (name == "in") return contains(renderer, operand(name, arguments), input);
  if (name == "lower") return is_case(renderer, input, false);
  if (name == "upper") return is_case(renderer, input, true);
  if (name == "sameas") {
    const Value& other = operand(name, arguments);
    return input.type_name() == other.type_name() && equal(renderer, input, other);
  }
  refuse("chat template", "a test that is known", "'" + std::string(name) + "'");
}

}  // namespace slipring::jinja
