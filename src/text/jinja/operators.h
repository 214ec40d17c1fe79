// Python's arithmetic on 64-bit integers and doubles.
#pragma once

#include <string>

#include "text/jinja/value.h"

namespace slipring::jinja {

/// `a op b` for +, -, *, /, //, % and **. @pre both are numbers
/// @throws Error{invalid_argument} for a divisor of 0, and for integers that would not fit
Value arithmetic(const std::string& op, const Value& a, const Value& b);

}  // namespace slipring::jinja
