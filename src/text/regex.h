// Regular expressions over UTF-8, as split rules use them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace slipring {

/// One compiled pattern. Immutable; any number of threads may search with it at once.
///
/// Patterns are written for Oniguruma (that is what tokenizer files hold) and run on PCRE2 with Unicode properties;
/// `\s` and `\w` are given the meaning that they have there.
class Regex {
 public:
  /// @param where  names the file's field, for errors
  /// @throws Error{unsupported} with the compiler's message and the place in the pattern
  Regex(std::string_view pattern, std::string_view where);

  struct Match {
    size_t begin = 0;
    size_t end = 0;
  };
  /// Walks the matches of one text from left to right.
  class Search {
   public:
    /// @param text valid UTF-8; outlives the search
    Search(const Regex& regex, std::string_view text) : regex_(&regex), text_(text) {}
    /// The next match that is not empty.
    /// @throws Error{invalid_argument} where the pattern needs more steps on this text than the limit allows
    std::optional<Match> next();

   private:
    const Regex* regex_;
    std::string_view text_;
    size_t at_ = 0;
  };

 private:
  std::shared_ptr<void> code_;
  std::string where_;
};

/// \w as Rust's regular expressions have it, for the inside of a character class: letter-like numbers and the joiners
/// are in, other numbers are not. tokenizer.json's Whitespace and single_word go by it.
inline constexpr std::string_view rust_word_class = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{200C}\x{200D})";

/// `text` as a pattern that matches exactly it.
std::string regex_quote(std::string_view text);

}  // namespace slipring
