#include "text/jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include <slipring/error.h>

#include "text/jinja/lexer.h"

namespace slipring::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Block run() {
    Block block = parse_block({});
    if (current().kind != TokenKind::end) fail("a tag without its beginning: '" + current().text + "'");
    return block;
  }

 private:
  // Counts one level of nesting for as long as it lives.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxNesting) parser_.fail("nesting deeper than " + std::to_string(kMaxNesting));
    }
    ~Nesting() { --parser_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  [[noreturn]] void fail(const std::string& got) const {
    throw Error(ErrorCode::bad_file, {.where = "chat template line " + std::to_string(current().line), .got = got});
  }

  // ---- tokens
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead(size_t count) const { return tokens_[std::min(at_ + count, tokens_.size() - 1)]; }
  Token next() {
    Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is_symbol(std::string_view text) const { return current().kind == TokenKind::symbol && current().text == text; }
  bool is_name(std::string_view text) const { return current().kind == TokenKind::name && current().text == text; }
  bool skip_symbol(std::string_view text) {
    if (!is_symbol(text)) return false;
    next();
    return true;
  }
  bool skip_name(std::string_view text) {
    if (!is_name(text)) return false;
    next();
    return true;
  }
  void expect_symbol(std::string_view text) {
    if (!skip_symbol(text)) fail("'" + current().text + "' where '" + std::string(text) + "' belongs");
  }
  void expect_name(std::string_view text) {
    if (!skip_name(text)) fail("'" + current().text + "' where '" + std::string(text) + "' belongs");
  }
  void expect(TokenKind kind, const char* what) {
    if (current().kind != kind) fail("'" + current().text + "' where " + what + " belongs");
    next();
  }
  std::string expect_identifier() {
    if (current().kind != TokenKind::name) fail("'" + current().text + "' where a name belongs");
    return next().text;
  }

  // ---- blocks
  // Statements up to a block tag named in `ends`; that tag's name is the current token then.
  Block parse_block(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(*this);
    Block block;
    while (current().kind != TokenKind::end) {
      if (current().kind == TokenKind::data) {
        auto stmt = make(Stmt::Kind::data);
        stmt->text = next().text;
        block.push_back(std::move(stmt));
      } else if (current().kind == TokenKind::output_begin) {
        auto stmt = make(Stmt::Kind::output);
        next();
        stmt->expr = parse_tuple();
        expect(TokenKind::output_end, "'}}'");
        block.push_back(std::move(stmt));
      } else {
        expect(TokenKind::block_begin, "a tag");
        for (const std::string_view end : ends) {
          if (is_name(end)) return block;
        }
        block.push_back(parse_statement());
      }
    }
    if (ends.size() > 0) fail("the end of the template where '" + std::string(*(ends.end() - 1)) + "' belongs");
    return block;
  }
  Block parse_body(std::string_view end) {
    expect(TokenKind::block_end, "'%}'");
    Block body = parse_block({end});
    next();
    return body;
  }
  std::unique_ptr<Stmt> make(Stmt::Kind kind) const {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = current().line;
    return stmt;
  }

  std::unique_ptr<Stmt> parse_statement() {
    const std::string tag = current().text;
    std::unique_ptr<Stmt> stmt;
    if (tag == "if") {
      return parse_branch();
    } else if (tag == "for") {
      stmt = parse_loop();
    } else if (tag == "set") {
      stmt = parse_set();
    } else if (tag == "macro") {
      stmt = make(Stmt::Kind::macro);
      next();
      stmt->text = expect_identifier();
      stmt->parameters = parse_parameters();
      stmt->body = parse_body("endmacro");
      if (current().kind == TokenKind::name) next();
    } else if (tag == "call") {
      stmt = make(Stmt::Kind::call_block);
      next();
      if (is_symbol("(")) stmt->parameters = parse_parameters();
      stmt->expr = parse_expression();
      if (stmt->expr->kind != Expr::Kind::call) fail("a call block without a call");
      stmt->body = parse_body("endcall");
    } else if (tag == "filter") {
      stmt = make(Stmt::Kind::filter_block);
      next();
      stmt->expr = parse_filters(block_text(), true);
      stmt->body = parse_body("endfilter");
    } else if (tag == "with") {
      stmt = parse_with();
    } else if (tag == "generation") {
      stmt = make(Stmt::Kind::group);
      next();
      stmt->body = parse_body("endgeneration");
    } else if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail("'" + tag + "' outside of a loop");
      stmt = make(tag == "break" ? Stmt::Kind::loop_break : Stmt::Kind::loop_continue);
      next();
    } else if (tag == "include" || tag == "import" || tag == "from" || tag == "extends" || tag == "block") {
      throw Error(ErrorCode::unsupported, {.where = "chat template line " + std::to_string(current().line),
                                           .got = "the tag '" + tag + "'",
                                           .advice = "chat templates stand alone and load nothing"});
    } else {
      fail("the unknown tag '" + tag + "'");
    }
    expect(TokenKind::block_end, "'%}'");
    return stmt;
  }

  // From 'if' or 'elif' to the end of 'endif', its own '%}' included.
  std::unique_ptr<Stmt> parse_branch() {
    const Nesting nesting(*this);
    auto stmt = make(Stmt::Kind::branch);
    next();
    stmt->expr = parse_tuple();
    expect(TokenKind::block_end, "'%}'");
    stmt->body = parse_block({"elif", "else", "endif"});
    if (is_name("elif")) {
      stmt->otherwise.push_back(parse_branch());
      return stmt;
    }
    if (skip_name("else")) {
      expect(TokenKind::block_end, "'%}'");
      stmt->otherwise = parse_block({"endif"});
    }
    expect_name("endif");
    expect(TokenKind::block_end, "'%}'");
    return stmt;
  }

  std::unique_ptr<Stmt> parse_loop() {
    auto stmt = make(Stmt::Kind::loop);
    next();
    stmt->target = parse_target();
    expect_name("in");
    stmt->expr = parse_tuple(false);
    if (skip_name("if")) stmt->condition = parse_expression();
    if (is_name("recursive")) {
      throw Error(ErrorCode::unsupported,
                  {.where = "chat template line " + std::to_string(current().line), .got = "a recursive loop"});
    }
    expect(TokenKind::block_end, "'%}'");
    ++loops_;
    stmt->body = parse_block({"else", "endfor"});
    --loops_;
    if (skip_name("else")) {
      expect(TokenKind::block_end, "'%}'");
      stmt->otherwise = parse_block({"endfor"});
    }
    expect_name("endfor");
    return stmt;
  }

  std::unique_ptr<Stmt> parse_set() {
    auto stmt = make(Stmt::Kind::set);
    next();
    stmt->target = parse_target();
    if (skip_symbol("=")) {
      stmt->expr = parse_tuple();
      return stmt;
    }
    stmt->kind = Stmt::Kind::set_block;
    if (is_symbol("|")) stmt->expr = parse_filters(block_text(), false);
    stmt->body = parse_body("endset");
    return stmt;
  }

  std::unique_ptr<Stmt> parse_with() {
    auto stmt = make(Stmt::Kind::with);
    next();
    while (current().kind != TokenKind::block_end) {
      if (!stmt->assignments.empty()) expect_symbol(",");
      ExprPtr target = parse_target();
      expect_symbol("=");
      stmt->assignments.emplace_back(std::move(target), parse_expression());
    }
    stmt->body = parse_body("endwith");
    return stmt;
  }

  std::vector<Parameter> parse_parameters() {
    std::vector<Parameter> parameters;
    expect_symbol("(");
    while (!is_symbol(")")) {
      if (!parameters.empty()) expect_symbol(",");
      Parameter parameter{expect_identifier(), nullptr};
      if (skip_symbol("=")) {
        parameter.fallback = parse_expression();
      } else if (!parameters.empty() && parameters.back().fallback != nullptr) {
        fail("a parameter without a default after one with it");
      }
      parameters.push_back(std::move(parameter));
    }
    next();
    return parameters;
  }

  // name, name.attribute, or a tuple of targets
  ExprPtr parse_target() {
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

  // ---- expressions, loosest binding first
  ExprPtr make_expr(Expr::Kind kind) const {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = current().line;
    return expr;
  }
  // The renderer recurses as deep as the tree is: a chain of operators counts like nested brackets.
  void deepen(Expr& parent, const Expr& child) const {
    parent.depth = std::max(parent.depth, child.depth + 1);
    if (parent.depth > kMaxDepth) fail("an expression deeper than " + std::to_string(kMaxDepth));
  }
  void adopt(Expr& parent, ExprPtr child) const {
    if (child != nullptr) deepen(parent, *child);
    parent.parts.push_back(std::move(child));
  }
  ExprPtr block_text() const {
    ExprPtr name = make_expr(Expr::Kind::name);
    name->text = kBlockText;
    return name;
  }
  ExprPtr binary(std::string text, ExprPtr left, ExprPtr right) const {
    ExprPtr expr = make_expr(Expr::Kind::binary);
    expr->text = std::move(text);
    adopt(*expr, std::move(left));
    adopt(*expr, std::move(right));
    return expr;
  }

  bool ends_tuple() const {
    return current().kind == TokenKind::block_end || current().kind == TokenKind::output_end || is_symbol(")") ||
           is_symbol("=") || is_name("in") || is_name("if") || current().kind == TokenKind::end;
  }
  ExprPtr parse_tuple(bool with_condition = true) {
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

  ExprPtr parse_expression() {
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
  ExprPtr parse_or() {
    const Nesting nesting(*this);
    ExprPtr left = parse_and();
    while (skip_name("or")) {
      left = binary("or", std::move(left), parse_and());
    }
    return left;
  }
  ExprPtr parse_and() {
    ExprPtr left = parse_not();
    while (skip_name("and")) {
      left = binary("and", std::move(left), parse_not());
    }
    return left;
  }
  ExprPtr parse_not() {
    if (!is_name("not")) return parse_comparison();
    const Nesting nesting(*this);
    ExprPtr expr = make_expr(Expr::Kind::unary);
    expr->text = next().text;
    adopt(*expr, parse_not());
    return expr;
  }
  ExprPtr parse_comparison() {
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
  ExprPtr parse_sum() {
    ExprPtr left = parse_concat();
    while (is_symbol("+") || is_symbol("-")) {
      std::string op = next().text;
      left = binary(std::move(op), std::move(left), parse_concat());
    }
    return left;
  }
  ExprPtr parse_concat() {
    ExprPtr left = parse_product();
    while (is_symbol("~")) {
      next();
      left = binary("~", std::move(left), parse_product());
    }
    return left;
  }
  ExprPtr parse_product() {
    ExprPtr left = parse_unary(true);
    while (is_symbol("*") || is_symbol("/") || is_symbol("//") || is_symbol("%")) {
      std::string op = next().text;
      left = binary(std::move(op), std::move(left), parse_unary(true));
    }
    return left;
  }
  ExprPtr parse_unary(bool with_filters) {
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

  ExprPtr parse_primary() {
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

  Value number(const Token& token) const {
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

  ExprPtr parse_postfix(ExprPtr expr) {
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
        ExprPtr call = make_expr(Expr::Kind::call);
        adopt(*call, std::move(expr));
        parse_arguments(*call);
        expr = std::move(call);
      } else {
        return expr;
      }
    }
  }
  ExprPtr parse_subscript(ExprPtr object) {
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
  void parse_arguments(Expr& call) {
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

  ExprPtr parse_tests_and_filters(ExprPtr expr) {
    while (true) {
      if (is_symbol("|")) {
        expr = parse_filters(std::move(expr), false);
      } else if (is_name("is")) {
        expr = parse_test(std::move(expr));
      } else if (is_symbol("(")) {
        ExprPtr call = make_expr(Expr::Kind::call);
        adopt(*call, std::move(expr));
        parse_arguments(*call);
        expr = std::move(call);
      } else {
        return expr;
      }
    }
  }
  // One or more filters; with `bare_first` the first has no '|' in front of it.
  ExprPtr parse_filters(ExprPtr expr, bool bare_first) {
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
  ExprPtr parse_test(ExprPtr subject) {
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

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Block parse(std::string_view source) {
  return Parser(tokenize(source)).run();
}

}  // namespace slipring::jinja
