// The parsed template: expressions and statements, data only. The parser makes them, the renderer walks them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace slipring::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Block = std::vector<std::unique_ptr<Stmt>>;

/// What a node's fields hold, by kind. "parts" are sub-expressions in order.
struct Expr {
  enum class Kind : uint8_t {
    literal,      ///< value
    name,         ///< text
    list,         ///< parts
    tuple,        ///< parts
    dict,         ///< parts: key, value, key, value ...
    attribute,    ///< parts[0].text
    subscript,    ///< parts[0][parts[1]]
    slice,        ///< parts[0][parts[1]:parts[2]:parts[3]], absent ones null
    call,         ///< parts[0](parts[1...], named)
    filter,       ///< parts[0] | text(parts[1...], named)
    test,         ///< parts[0] is text(parts[1...]); negated by negate
    unary,        ///< text parts[0]: "-", "+", "not"
    binary,       ///< parts[0] text parts[1]; "and" and "or" evaluate the second only if needed
    comparison,   ///< parts[0] operators[0] parts[1] operators[1] parts[2] ...
    conditional,  ///< parts[0] if parts[1] else parts[2], the last may be null
  };
  Kind kind = Kind::literal;
  int line = 1;
  int depth = 1;  ///< of the tree below, itself included
  bool negate = false;
  std::string text;
  Value value;
  std::vector<ExprPtr> parts;
  std::vector<std::string> operators;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

/// One parameter of a macro or a call block; the default may be null.
struct Parameter {
  std::string name;
  ExprPtr fallback;
};

struct Stmt {
  enum class Kind : uint8_t {
    data,          ///< text
    output,        ///< expr
    branch,        ///< if expr: body, else: otherwise
    loop,          ///< for target in expr [if condition]: body, else: otherwise
    set,           ///< target = expr
    set_block,     ///< target = body as text, passed through filter (expr, over the name kBlockText) if not null
    with,          ///< assignments, body
    macro,         ///< text(parameters): body
    call_block,    ///< expr is the call; parameters and body make `caller`
    filter_block,  ///< body as text, passed through expr over kBlockText
    group,         ///< body, as it stands (generation blocks)
    loop_break,
    loop_continue,
  };
  Kind kind = Kind::data;
  int line = 1;
  std::string text;
  ExprPtr expr;
  ExprPtr target;  ///< a name, a tuple of targets, or an attribute of a name
  ExprPtr condition;
  std::vector<std::pair<ExprPtr, ExprPtr>> assignments;
  std::vector<Parameter> parameters;
  Block body;
  Block otherwise;
};

/// The name under which a filter block's text reaches its filters; no template can spell it.
inline constexpr const char* kBlockText = " block";

}  // namespace slipring::jinja
