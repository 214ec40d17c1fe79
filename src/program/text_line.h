// One line of a program's text form, taken apart from left to right.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <slipring/dtype.h>

namespace slipring {

/// Every function skips spaces first, and throws Error{bad_file} that names the line, what was expected there and what
/// there is. The text must outlive the line. Threads: one.
class TextLine {
 public:
  /// @param where  the file's name, which must outlive the line
  TextLine(std::string_view text, const std::string& where, int number) : rest_(text), where_(where), number_(number) {}

  [[noreturn]] void fail(const std::string& expected) const;
  [[noreturn]] void fail(const std::string& expected, std::string got) const;

  bool done();
  void end();  ///< nothing may be left
  bool take(std::string_view token);
  void expect(std::string_view token);
  std::string word();  ///< letters, digits and what else names hold
  int64_t integer(int64_t least, int64_t most);
  float real();      ///< finite
  float positive();  ///< above 0
  DType dtype();
  std::string quoted();              ///< "name" with \xx for odd characters
  std::string_view rest();           ///< everything that is left
  std::string_view until(char end);  ///< everything up to `end`, which is taken too

  // "name=" and the value behind it, after a comma or not.
  void key(std::string_view name);
  int64_t field(std::string_view name, int64_t least, int64_t most);
  float real_field(std::string_view name);
  float positive_field(std::string_view name);
  std::string word_field(std::string_view name);

 private:
  void skip();

  std::string_view rest_;
  const std::string& where_;
  int number_;
};

}  // namespace slipring
