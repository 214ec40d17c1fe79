#include "program/text_line.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include <slipring/error.h>

namespace slipring {
namespace {

/// The number at the start of `text`, which is cut off there.
template <class T>
std::optional<T> take_number(std::string_view& text) {
  T value{};
  const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return value;
}

}  // namespace

void TextLine::fail(const std::string& expected) const {
  fail(expected, rest_.empty() ? "the end of the line" : fmt::format("\"{}\"", rest_.substr(0, 40)));
}

void TextLine::fail(const std::string& expected, std::string got) const {
  throw Error(ErrorCode::bad_file, {.where = fmt::format("{}, line {}", where_, number_),
                                    .expected = expected,
                                    .got = std::move(got),
                                    .advice = {}});
}

void TextLine::skip() {
  while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
}

bool TextLine::done() {
  skip();
  return rest_.empty();
}

void TextLine::end() {
  if (!done()) fail("the end of the line");
}

bool TextLine::take(std::string_view token) {
  skip();
  if (!rest_.starts_with(token)) return false;
  rest_.remove_prefix(token.size());
  return true;
}

void TextLine::expect(std::string_view token) {
  if (!take(token)) fail(fmt::format("\"{}\"", token));
}

std::string TextLine::word() {
  skip();
  const auto is_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '@' || c == '%';
  };
  const auto* stop = std::find_if_not(rest_.begin(), rest_.end(), is_name);
  std::string found(rest_.begin(), stop);
  if (found.empty()) fail("a word");
  rest_.remove_prefix(found.size());
  return found;
}

int64_t TextLine::integer(int64_t least, int64_t most) {
  skip();
  const auto value = take_number<int64_t>(rest_);
  if (!value || *value < least || *value > most) fail(fmt::format("a whole number from {} to {}", least, most));
  return *value;
}

float TextLine::real() {
  skip();
  const auto value = take_number<float>(rest_);
  if (!value || !std::isfinite(*value)) fail("a number");
  return *value;
}

float TextLine::positive() {
  const float value = real();
  if (!(value > 0)) fail("a number above 0", fmt::format("{}", value));
  return value;
}

DType TextLine::dtype() {
  const auto found = dtype_from_name(word());
  if (!found) fail("an element type");
  return *found;
}

std::string TextLine::quoted() {
  expect("\"");
  std::string text;
  while (!rest_.empty() && rest_.front() != '"') {
    char c = rest_.front();
    rest_.remove_prefix(1);
    if (c == '\\') {
      unsigned byte = 0;
      const char* end = rest_.data() + std::min<size_t>(2, rest_.size());
      const auto [stop, problem] = std::from_chars(rest_.data(), end, byte, 16);
      if (problem != std::errc{} || stop != rest_.data() + 2) fail("two hexadecimal digits");
      rest_.remove_prefix(2);
      c = static_cast<char>(byte);
    }
    text += c;
  }
  expect("\"");
  return text;
}

std::string_view TextLine::rest() {
  skip();
  return std::exchange(rest_, {});
}

std::string_view TextLine::until(char end) {
  skip();
  const size_t at = rest_.find(end);
  if (at == std::string_view::npos) fail(fmt::format("a '{}'", end));
  const std::string_view found = rest_.substr(0, at);
  rest_.remove_prefix(at + 1);
  return found;
}

void TextLine::key(std::string_view name) {
  take(",");
  expect(name);
  expect("=");
}

int64_t TextLine::field(std::string_view name, int64_t least, int64_t most) {
  key(name);
  return integer(least, most);
}

float TextLine::real_field(std::string_view name) {
  key(name);
  return real();
}

float TextLine::positive_field(std::string_view name) {
  key(name);
  return positive();
}

std::string TextLine::word_field(std::string_view name) {
  key(name);
  return word();
}

}  // namespace slipring
