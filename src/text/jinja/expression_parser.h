// The part of the parser that reads expressions, and what may be assigned to.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/token_reader.h"

namespace slipring::jinja {

class ExpressionParser : protected TokenReader {
 protected:
  using TokenReader::TokenReader;
  ~ExpressionParser() = default;

  // name, name.attribute, or a tuple of targets
  ExprPtr parse_target();
  ExprPtr make_expr(Expr::Kind kind) const;
  ExprPtr block_text() const;
  ExprPtr parse_tuple(bool with_condition = true);
  ExprPtr parse_expression();
  // One or more filters; with `bare_first` the first has no '|' in front of it.
  ExprPtr parse_filters(ExprPtr expr, bool bare_first);

 private:
  // The renderer recurses as deep as the tree is: a chain of operators counts like nested brackets.
  void deepen(Expr& parent, const Expr& child) const;
  void adopt(Expr& parent, ExprPtr child) const;
  ExprPtr binary(std::string text, ExprPtr left, ExprPtr right) const;
  bool ends_tuple() const;
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_comparison();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_primary();
  Value number(const Token& token) const;
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_call(ExprPtr callee);
  void parse_arguments(Expr& call);
  ExprPtr parse_tests_and_filters(ExprPtr expr);
  ExprPtr parse_test(ExprPtr subject);
};

}  // namespace slipring::jinja
