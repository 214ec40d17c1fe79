#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>

namespace slipring::jinja {

// Expressions from the loosest binding to the tightest.

// name, name.attribute, or a tuple of targets
ExprPtr ExpressionParser::parse_target() {
  std::vector<ExprPtr> targets;
  bool tuple = false;
  do {
    if (!targets.empty() && (is_name("in") || is_symbol("=") || is_symbol(")"))) break;
    const Nesting nesting(*this);
    if (skip_symbol("(")) {
      targets.push_back(parse_target());
      expect_symbol(")");
      continue;
    }
    ExprPtr target = make_expr(Expr::Kind::name);
    target->text = expect_identifier();
    if (skip_symbol(".")) {
      ExprPtr attribute = make_expr(Expr::Kind::attribute);
      attribute->text = expect_identifier();
      adopt(*attribute, std::move(target));
      target = std::move(attribute);
    }
    targets.push_back(std::move(target));
  } while (skip_symbol(",") && (tuple = true));
  if (!tuple) return std::move(targets.front());
  ExprPtr all = make_expr(Expr::Kind::tuple);
  for (ExprPtr& part : targets) adopt(*all, std::move(part));
  return all;
}

ExprPtr ExpressionParser::make_expr(Expr::Kind kind) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = current().line;
  return expr;
}

// The renderer recurses as deep as the tree is: a chain of operators counts like nested brackets.
void ExpressionParser::deepen(Expr& parent, const Expr& child) const {
  parent.depth = std::max(parent.depth, child.depth + 1);
  if (parent.depth > kMaxDepth) fail("an expression deeper than " + std::to_string(kMaxDepth));
}

void ExpressionParser::adopt(Expr& parent, ExprPtr child) const {
  if (child != nullptr) deepen(parent, *child);
  parent.parts.push_back(std::move(child));
}

ExprPtr ExpressionParser::block_text() const {
  ExprPtr name = make_expr(Expr::Kind::name);
  name->text = kBlockText;
  return name;
}

ExprPtr ExpressionParser::binary(std::string text, ExprPtr left, ExprPtr right) const {
  ExprPtr expr = make_expr(Expr::Kind::binary);
  expr->text = std::move(text);
  adopt(*expr, std::move(left));
  adopt(*expr, std::move(right));
  return expr;
}

bool ExpressionParser::ends_tuple() const {
  return current().kind == TokenKind::block_end || current().kind == TokenKind::output_end || is_symbol(")") ||
         is_symbol("=") || is_name("in") || is_name("if") || current().kind == TokenKind::end;
}

ExprPtr ExpressionParser::parse_tuple(bool with_condition) {
  ExprPtr first = with_condition ? parse_expression() : parse_or();
  if (!is_symbol(",")) return first;
  ExprPtr tuple = make_expr(Expr::Kind::tuple);
  adopt(*tuple, std::move(first));
  while (skip_symbol(",")) {
    if (ends_tuple()) break;
    adopt(*tuple, with_condition ? parse_expression() : parse_or());
  }
  return tuple;
}

ExprPtr ExpressionParser::parse_expression() {
  const Nesting nesting(*this);
  ExprPtr expr = parse_or();
  while (is_name("if")) {
    ExprPtr conditional = make_expr(Expr::Kind::conditional);
    next();
    adopt(*conditional, std::move(expr));
    adopt(*conditional, parse_or());
    adopt(*conditional, skip_name("else") ? parse_expression() : nullptr);
    expr = std::move(conditional);
  }
  return expr;
}

ExprPtr ExpressionParser::parse_or() {
  const Nesting nesting(*this);
  ExprPtr left = parse_and();
  while (skip_name("or")) {
    left = binary("or", std::move(left), parse_and());
  }
  return left;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  while (skip_name("and")) {
    left = binary("and", std::move(left), parse_not());
  }
  return left;
}

ExprPtr ExpressionParser::parse_not() {
  if (!is_name("not")) return parse_comparison();
  const Nesting nesting(*this);
  ExprPtr expr = make_expr(Expr::Kind::unary);
  expr->text = next().text;
  adopt(*expr, parse_not());
  return expr;
}

ExprPtr ExpressionParser::parse_comparison() {
  ExprPtr left = parse_sum();
  ExprPtr chain;
  while (true) {
    std::string op;
    if (current().kind == TokenKind::symbol && (is_symbol("==") || is_symbol("!=") || is_symbol("<") ||
                                                is_symbol("<=") || is_symbol(">") || is_symbol(">="))) {
      op = next().text;
    } else if (skip_name("in")) {
      op = "in";
    } else if (is_name("not") && ahead(1).kind == TokenKind::name && ahead(1).text == "in") {
      next();
      next();
      op = "not in";
    } else {
      return chain != nullptr ? std::move(chain) : std::move(left);
    }
    if (chain == nullptr) {
      chain = make_expr(Expr::Kind::comparison);
      adopt(*chain, std::move(left));
    }
    chain->operators.push_back(std::move(op));
    adopt(*chain, parse_sum());
  }
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr left = parse_concat();
  while (is_symbol("+") || is_symbol("-")) {
    std::string op = next().text;
    left = binary(std::move(op), std::move(left), parse_concat());
  }
  return left;
}

ExprPtr ExpressionParser::parse_concat() {
  ExprPtr left = parse_product();
  while (is_symbol("~")) {
    next();
    left = binary("~", std::move(left), parse_product());
  }
  return left;
}

ExprPtr ExpressionParser::parse_product() {
  ExprPtr left = parse_unary(true);
  while (is_symbol("*") || is_symbol("/") || is_symbol("//") || is_symbol("%")) {
    std::string op = next().text;
    left = binary(std::move(op), std::move(left), parse_unary(true));
  }
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  ExprPtr expr;
  if (is_symbol("-") || is_symbol("+")) {
    const Nesting nesting(*this);
    expr = make_expr(Expr::Kind::unary);
    expr->text = next().text;
    adopt(*expr, parse_unary(false));
  } else {
    expr = parse_postfix(parse_primary());
    if (is_symbol("**")) {
      const Nesting nesting(*this);
      next();
      expr = binary("**", std::move(expr), parse_unary(false));
    }
  }
  return with_filters ? parse_tests_and_filters(std::move(expr)) : std::move(expr);
}

ExprPtr ExpressionParser::parse_primary() {
  const Nesting nesting(*this);
  const Token token = current();
  ExprPtr expr = make_expr(Expr::Kind::literal);
  if (token.kind == TokenKind::name) {
    next();
    if (token.text == "true" || token.text == "True") {
      expr->value = Value::boolean(true);
    } else if (token.text == "false" || token.text == "False") {
      expr->value = Value::boolean(false);
    } else if (token.text == "none" || token.text == "None") {
      expr->value = Value::none();
    } else {
      expr->kind = Expr::Kind::name;
      expr->text = token.text;
    }
  } else if (token.kind == TokenKind::string) {
    std::string text;
    while (current().kind == TokenKind::string) text += next().text;
    expr->value = Value::string(std::move(text));
  } else if (token.kind == TokenKind::integer || token.kind == TokenKind::floating) {
    expr->value = number(next());
  } else if (skip_symbol("(")) {
    if (skip_symbol(")")) {
      expr->kind = Expr::Kind::tuple;
    } else {
      expr = parse_tuple();
      expect_symbol(")");
    }
  } else if (skip_symbol("[")) {
    expr->kind = Expr::Kind::list;
    while (!is_symbol("]")) {
      if (!expr->parts.empty()) expect_symbol(",");
      if (is_symbol("]")) break;
      adopt(*expr, parse_expression());
    }
    next();
  } else if (skip_symbol("{")) {
    expr->kind = Expr::Kind::dict;
    while (!is_symbol("}")) {
      if (!expr->parts.empty()) expect_symbol(",");
      if (is_symbol("}")) break;
      adopt(*expr, parse_expression());
      expect_symbol(":");
      adopt(*expr, parse_expression());
    }
    next();
  } else {
    fail(token.text.empty() ? "nothing where an expression belongs"
                            : "'" + token.text + "' where an expression belongs");
  }
  return expr;
}

Value ExpressionParser::number(const Token& token) const {
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.kind == TokenKind::floating) {
    double value = 0;
    const auto result = std::from_chars(begin, end, value);
    if (result.ec != std::errc() || result.ptr != end) fail("the number " + token.text);
    return Value::number(value);
  }
  int base = 10;
  if (token.text.size() > 2 && token.text[0] == '0') {
    const char letter = token.text[1];
    base = letter == 'x' || letter == 'X'   ? 16
           : letter == 'o' || letter == 'O' ? 8
           : letter == 'b' || letter == 'B' ? 2
                                            : 10;
    if (base != 10) begin += 2;
  }
  int64_t value = 0;
  const auto result = std::from_chars(begin, end, value, base);
  if (result.ec != std::errc() || result.ptr != end) fail("the number " + token.text);
  return Value::integer(value);
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (skip_symbol(".")) {
      ExprPtr access = make_expr(Expr::Kind::attribute);
      if (current().kind == TokenKind::integer) {
        access->kind = Expr::Kind::subscript;
        adopt(*access, std::move(expr));
        adopt(*access, make_expr(Expr::Kind::literal));
        access->parts[1]->value = number(next());
      } else {
        access->text = expect_identifier();
        adopt(*access, std::move(expr));
      }
      expr = std::move(access);
    } else if (is_symbol("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (is_symbol("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr object) {
  expect_symbol("[");
  ExprPtr access = make_expr(Expr::Kind::subscript);
  adopt(*access, std::move(object));
  if (!is_symbol(":")) adopt(*access, parse_expression());
  if (is_symbol(":")) {
    access->kind = Expr::Kind::slice;
    if (access->parts.size() == 1) adopt(*access, nullptr);
    while (skip_symbol(":")) {
      if (access->parts.size() == 4) fail("a slice with more than three parts");
      adopt(*access, is_symbol(":") || is_symbol("]") ? nullptr : parse_expression());
    }
    if (access->parts.size() == 3) adopt(*access, nullptr);
  }
  expect_symbol("]");
  return access;
}

ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  ExprPtr call = make_expr(Expr::Kind::call);
  adopt(*call, std::move(callee));
  parse_arguments(*call);
  return call;
}

void ExpressionParser::parse_arguments(Expr& call) {
  expect_symbol("(");
  bool first = true;
  while (!is_symbol(")")) {
    if (!first) expect_symbol(",");
    first = false;
    if (is_symbol(")")) break;
    if (is_symbol("*") || is_symbol("**")) fail("unpacked arguments, which chat templates do without");
    if (current().kind == TokenKind::name && ahead(1).kind == TokenKind::symbol && ahead(1).text == "=") {
      std::string name = next().text;
      next();
      call.named.emplace_back(std::move(name), parse_expression());
      deepen(call, *call.named.back().second);
    } else if (!call.named.empty()) {
      fail("an argument without a name after one with it");
    } else {
      adopt(call, parse_expression());
    }
  }
  next();
}

ExprPtr ExpressionParser::parse_tests_and_filters(ExprPtr expr) {
  while (true) {
    if (is_symbol("|")) {
      expr = parse_filters(std::move(expr), false);
    } else if (is_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (is_symbol("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

// One or more filters; with `bare_first` the first has no '|' in front of it.
ExprPtr ExpressionParser::parse_filters(ExprPtr expr, bool bare_first) {
  while (bare_first || is_symbol("|")) {
    if (!bare_first) next();
    bare_first = false;
    ExprPtr filter = make_expr(Expr::Kind::filter);
    filter->text = expect_identifier();
    while (skip_symbol(".")) filter->text += "." + expect_identifier();
    adopt(*filter, std::move(expr));
    if (is_symbol("(")) parse_arguments(*filter);
    expr = std::move(filter);
  }
  return expr;
}

ExprPtr ExpressionParser::parse_test(ExprPtr subject) {
  next();
  ExprPtr test = make_expr(Expr::Kind::test);
  test->negate = skip_name("not");
  test->text = expect_identifier();
  adopt(*test, std::move(subject));
  const Token& token = current();
  const bool operand =
      token.kind == TokenKind::string || token.kind == TokenKind::integer || token.kind == TokenKind::floating ||
      is_symbol("[") || is_symbol("{") ||
      (token.kind == TokenKind::name && token.text != "else" && token.text != "or" && token.text != "and" &&
       token.text != "is" && token.text != "if" && token.text != "in" && token.text != "not");
  if (is_symbol("(")) {
    parse_arguments(*test);
  } else if (operand) {
    adopt(*test, parse_postfix(parse_primary()));
  }
  return test;
}

}  // namespace slipring::jinja
