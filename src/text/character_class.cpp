#include "text/character_class.h"

#include <string>

#include "text/regex.h"
#include "text/utf8.h"

namespace slipring {

bool is_word(uint32_t c) {
  static const Regex word("[" + std::string(rust_word_class) + "]", "word characters");
  std::string text;
  utf8::append(text, c);
  Regex::Effort effort;
  return Regex::Search(word, text, effort).next().has_value();
}

}  // namespace slipring
