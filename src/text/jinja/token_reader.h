// Steps through a template's tokens: what both parsers stand on.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <slipring/error.h>

#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"

namespace slipring::jinja {

class TokenReader {
 protected:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  ~TokenReader() = default;

  // Counts one level of nesting for as long as it lives.
  class Nesting {
   public:
    explicit Nesting(TokenReader& reader) : reader_(reader) {
      if (++reader_.depth_ > kMaxNesting) reader_.fail("nesting deeper than " + std::to_string(kMaxNesting));
    }
    ~Nesting() { --reader_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    TokenReader& reader_;
  };

  [[noreturn]] void fail(const std::string& got) const {
    throw Error(ErrorCode::bad_file, {.where = "chat template line " + std::to_string(current().line), .got = got});
  }

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

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace slipring::jinja
