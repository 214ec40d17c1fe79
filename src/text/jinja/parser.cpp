#include "text/jinja/parser.h"

#include <initializer_list>

#include "text/jinja/expression_parser.h"

namespace slipring::jinja {
namespace {

// Statements.
class Parser : private ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Block run() {
    Block block = parse_block({});
    if (current().kind != TokenKind::end) fail("a tag without its beginning: '" + current().text + "'");
    return block;
  }

 private:
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

  int loops_ = 0;
};

}  // namespace

Block parse(std::string_view source) {
  return Parser(tokenize(source)).run();
}

}  // namespace slipring::jinja
