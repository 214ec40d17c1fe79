// Builds the tree of a template.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace slipring::jinja {

/// Deepest nesting of expressions and blocks that is accepted.
inline constexpr int kMaxNesting = 150;
/// Deepest tree of one expression.
inline constexpr int kMaxDepth = 500;

/// @throws Error{bad_file} naming the line, for what is no template; Error{unsupported} for tags that load other files
Block parse(std::string_view source);

}  // namespace slipring::jinja
