#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include <slipring/error.h>

#include "text/jinja/utf8.h"

namespace slipring::jinja {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// One newline at the very end goes, and every kind of newline becomes '\n', as jinja2 does by default.
std::string normalise(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalise(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t open = find_open();
      const char tag = open < source_.size() ? source_[open + 1] : '\0';
      take_data(open, tag);
      if (open == source_.size()) break;
      if (tag == '#') {
        take_comment();
      } else if (tag == '%' && starts_raw()) {
        take_raw();
      } else {
        take_tag(tag);
      }
    }
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& got) const {
    throw Error(ErrorCode::bad_file, {.where = "chat template line " + std::to_string(line_), .got = got});
  }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  size_t find_open() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) return i;
    }
    return source_.size();
  }

  // The text up to a tag; the tag's own sign, or lstrip_blocks, may take whitespace off its end.
  void take_data(size_t open, char tag) {
    size_t end = open;
    if (open < source_.size()) {
      const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
      if (sign == '-') {
        while (end > at_ && is_blank(source_[end - 1])) --end;
      } else if (sign != '+' && tag != '{') {
        size_t start = end;
        while (start > at_ && is_blank(source_[start - 1]) && source_[start - 1] != '\n') --start;
        if (start > at_ ? source_[start - 1] == '\n' : line_starting_) end = start;
      }
    }
    if (end > at_) add(TokenKind::data, source_.substr(at_, end - at_));
    advance_to(open);
  }

  void advance_to(size_t position) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
    at_ = position;
  }

  // Past the end of a tag; `sign` is the character before the closing pair.
  void close(size_t end, char sign, bool trims_newline) {
    size_t next = end;
    if (sign == '-') {
      while (next < source_.size() && is_blank(source_[next])) ++next;
    } else if (trims_newline && sign != '+' && next < source_.size() && source_[next] == '\n') {
      ++next;
    }
    advance_to(next);
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  void take_comment() {
    const size_t end = source_.find("#}", at_ + 2);
    if (end == std::string::npos) fail("a comment without its end");
    close(end + 2, source_[end - 1], true);
  }

  // Position after `word` inside a tag that opens at `from`, or 0.
  size_t match_tag(size_t from, std::string_view word, bool& strips_left, size_t& inner_end) const {
    size_t i = from + 2;
    strips_left = i < source_.size() && source_[i] == '-';
    if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
    while (i < source_.size() && is_blank(source_[i])) ++i;
    if (source_.compare(i, word.size(), word) != 0) return 0;
    i += word.size();
    while (i < source_.size() && is_blank(source_[i])) ++i;
    if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
    if (source_.compare(i, 2, "%}") != 0) return 0;
    inner_end = i;
    return i + 2;
  }
  bool starts_raw() const {
    bool strips = false;
    size_t inner_end = 0;
    return match_tag(at_, "raw", strips, inner_end) != 0;
  }
  void take_raw() {
    bool strips = false;
    size_t inner_end = 0;
    const size_t body = match_tag(at_, "raw", strips, inner_end);
    close(body, source_[inner_end - 1], true);
    for (size_t open = source_.find("{%", at_); open != std::string::npos; open = source_.find("{%", open + 2)) {
      const size_t after = match_tag(open, "endraw", strips, inner_end);
      if (after == 0) continue;
      take_data(open, '%');
      close(after, source_[inner_end - 1], true);
      return;
    }
    fail("a raw block without its end");
  }

  void take_tag(char tag) {
    const bool output = tag == '{';
    at_ += 2;
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
    add(output ? TokenKind::output_begin : TokenKind::block_begin, "");
    const std::string_view closing = output ? "}}" : "%}";
    std::vector<char> brackets;
    while (true) {
      while (at_ < source_.size() && is_blank(source_[at_])) advance_to(at_ + 1);
      if (at_ >= source_.size()) fail("a tag without its end");
      const char c = source_[at_];
      const bool signed_end = (c == '-' || (c == '+' && !output)) && source_.compare(at_ + 1, 2, closing) == 0;
      if (brackets.empty() && (signed_end || source_.compare(at_, 2, closing) == 0)) {
        add(output ? TokenKind::output_end : TokenKind::block_end, "");
        close(at_ + (signed_end ? 3 : 2), signed_end ? c : ' ', !output);
        return;
      }
      take_token(c, brackets);
    }
  }

  void take_token(char c, std::vector<char>& brackets) {
    if (is_name_start(c)) {
      const size_t start = at_;
      while (at_ < source_.size() && (is_name_start(source_[at_]) || is_digit(source_[at_]))) ++at_;
      add(TokenKind::name, source_.substr(start, at_ - start));
    } else if (is_digit(c)) {
      take_number();
    } else if (c == '\'' || c == '"') {
      take_string(c);
    } else {
      take_symbol(c, brackets);
    }
  }

  void take_number() {
    std::string digits;
    bool floating = false;
    const bool prefixed = source_[at_] == '0' && at_ + 1 < source_.size() &&
                          std::string_view("xXoObB").find(source_[at_ + 1]) != std::string_view::npos;
    const auto is_alnum = [](char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    while (at_ < source_.size()) {
      const char c = source_[at_];
      const char next = at_ + 1 < source_.size() ? source_[at_ + 1] : '\0';
      if (c == '_' && is_alnum(next)) {
        ++at_;
        continue;
      }
      const bool exponent = !prefixed && (c == 'e' || c == 'E') && (is_digit(next) || next == '-' || next == '+');
      if (is_digit(c) || (prefixed && is_alnum(c))) {
        digits += c;
      } else if (c == '.' && !prefixed && !floating && is_digit(next)) {
        floating = true;
        digits += c;
      } else if (exponent) {
        floating = true;
        digits += c;
        digits += next;
        ++at_;
      } else {
        break;
      }
      ++at_;
    }
    add(floating ? TokenKind::floating : TokenKind::integer, digits);
  }

  void take_string(char quote) {
    const size_t start = ++at_;
    size_t end = start;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string without its end");
    add(TokenKind::string, unescape(std::string_view(source_).substr(start, end - start)));
    advance_to(end + 1);
  }

  static int hex_digits(std::string_view text, size_t at, size_t count, uint32_t& value) {
    value = 0;
    if (at + count > text.size()) return 0;
    for (size_t i = 0; i < count; ++i) {
      const char c = text[at + i];
      const uint32_t digit = is_digit(c)            ? static_cast<uint32_t>(c - '0')
                             : c >= 'a' && c <= 'f' ? static_cast<uint32_t>(c - 'a' + 10)
                             : c >= 'A' && c <= 'F' ? static_cast<uint32_t>(c - 'A' + 10)
                                                    : 16;
      if (digit == 16) return 0;
      value = value * 16 + digit;
    }
    return static_cast<int>(count);
  }

  std::string unescape(std::string_view text) const {
    constexpr std::string_view kNames = "ntrbfva0\\'\"";
    constexpr std::string_view kValues("\n\t\r\b\f\v\a\0\\'\"", 11);
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      if (c == '\n') continue;
      const size_t simple = kNames.find(c);
      if (simple != std::string_view::npos) {
        out += kValues[simple];
        continue;
      }
      uint32_t code = 0;
      const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
      if (count == 0) {
        out += '\\';
        out += c;
        continue;
      }
      if (hex_digits(text, i + 1, count, code) == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        fail("an escape that is no character");
      }
      append_code_point(out, code);
      i += count;
    }
    return out;
  }

  void take_symbol(char c, std::vector<char>& brackets) {
    static constexpr std::array<std::string_view, 6> kPairs = {"==", "!=", "<=", ">=", "//", "**"};
    for (const std::string_view pair : kPairs) {
      if (source_.compare(at_, 2, pair) == 0) {
        add(TokenKind::symbol, std::string(pair));
        at_ += 2;
        return;
      }
    }
    if (std::string_view("+-*/%~<>=.,:|()[]{};").find(c) == std::string_view::npos)
      fail(std::string("the character '") + c + "'");
    if (c == '(' || c == '[' || c == '{') brackets.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c) fail(std::string("an unexpected '") + c + "'");
      brackets.pop_back();
    }
    add(TokenKind::symbol, std::string(1, c));
    ++at_;
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace slipring::jinja
