// Cuts a template into tokens, with the whitespace rules of trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slipring::jinja {

enum class TokenKind : uint8_t {
  data,          ///< text outside of tags
  output_begin,  ///< {{
  output_end,    ///< }}
  block_begin,   ///< {%
  block_end,     ///< %}
  name,
  string,   ///< text holds the value, escapes resolved
  integer,  ///< text holds the digits with their prefix, without underscores
  floating,
  symbol,  ///< an operator or a bracket
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;
  int line = 1;
};

/// All tokens of `source`, ended by one of kind end. Comments are gone, raw blocks are data.
/// @throws Error{bad_file} naming the line
std::vector<Token> tokenize(std::string_view source);

}  // namespace slipring::jinja
