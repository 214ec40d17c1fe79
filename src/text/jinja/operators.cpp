#include "text/jinja/operators.h"

#include <cmath>

#include "text/jinja/renderer.h"

namespace slipring::jinja {
namespace {

int64_t checked(bool overflow, int64_t value) {
  if (overflow) refuse(kTemplate, "integers of 64 bits", "a larger result");
  return value;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) refuse(kTemplate, "a divisor other than 0", "0");
  if (b == -1) return checked(a == INT64_MIN, a == INT64_MIN ? 0 : -a);
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) return Value::number(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  // These never overflow, so that no exponent would end the loop below.
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    const bool overflow = __builtin_mul_overflow(result, base, &result);
    checked(overflow, result);
  }
  return Value::integer(result);
}

}  // namespace

Value arithmetic(const std::string& op, const Value& a, const Value& b) {
  if (a.is_float() || b.is_float() || op == "/") {
    const double x = a.as_double();
    const double y = b.as_double();
    if (op == "+") return Value::number(x + y);
    if (op == "-") return Value::number(x - y);
    if (op == "*") return Value::number(x * y);
    if (op == "**") return Value::number(std::pow(x, y));
    if (y == 0) refuse(kTemplate, "a divisor other than 0", "0");
    if (op == "/") return Value::number(x / y);
    if (op == "//") return Value::number(std::floor(x / y));
    const double rest = std::fmod(x, y);
    return Value::number(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
  }
  const int64_t x = a.as_integer();
  const int64_t y = b.as_integer();
  int64_t result = 0;
  if (op == "//") return Value::integer(floor_divide(x, y));
  if (op == "%") return Value::integer(y == -1 ? 0 : x - floor_divide(x, y) * y);
  if (op == "**") return power(x, y);
  const bool overflow = op == "+"   ? __builtin_add_overflow(x, y, &result)
                        : op == "-" ? __builtin_sub_overflow(x, y, &result)
                                    : __builtin_mul_overflow(x, y, &result);
  return Value::integer(checked(overflow, result));
}

}  // namespace slipring::jinja
