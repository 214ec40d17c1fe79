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
///
/// Patterns come out of files and texts from users, so that either may be made to take for ever: matches that each look
/// at the whole rest of the text, or that backtrack without end. Searches therefore share an Effort, which grows with
/// the text that is searched; there is no limit in time, so that the same text is refused everywhere or nowhere.
class Regex {
 public:
  /// @param where  names the file's field, for errors
  /// @throws Error{unsupported} with the compiler's message and the place in the pattern, and for (*VERBS) and \G
  Regex(std::string_view pattern, std::string_view where);

  struct Match {
    size_t begin = 0;
    size_t end = 0;
  };
  /// What the searches of one task may take together: bytes looked at beyond the first few of each match, and steps of
  /// backtracking likewise. The rules of known tokenizers take 6 a byte on the worst of texts, one run of 10 MB.
  class Effort {
   public:
    static constexpr size_t kPerByte = 32;
    static constexpr size_t kAlways = size_t{1} << 20;
    /// How far a match may look before it costs anything.
    static constexpr size_t kFirstReach = 256;

    explicit Effort(size_t first_reach = kFirstReach) : first_reach_(first_reach) {}

   private:
    friend class Regex;
    size_t left_ = kAlways;
    size_t first_reach_;
  };
  /// Walks the matches of one text from left to right.
  class Search {
   public:
    /// @param text valid UTF-8; outlives the search, as does `effort`
    Search(const Regex& regex, std::string_view text, Effort& effort) : regex_(&regex), text_(text), effort_(&effort) {
      effort.left_ += Effort::kPerByte * text.size();
    }
    /// The next match that is not empty.
    /// @throws Error{invalid_argument} where the pattern needs more than the effort that is left
    std::optional<Match> next();

   private:
    int match(size_t end, size_t steps, bool only_here) const;
    size_t character_end(size_t at) const;
    void spend(size_t steps);

    const Regex* regex_;
    std::string_view text_;
    Effort* effort_;
    size_t at_ = 0;
  };

 private:
  std::shared_ptr<void> code_;
  std::shared_ptr<void> anchored_;  // the same for a match that begins where the search stands
  std::string where_;
};

/// \w as Rust's regular expressions have it, for the inside of a character class: letter-like numbers and the joiners
/// are in, other numbers are not. tokenizer.json's Whitespace and single_word go by it.
inline constexpr std::string_view rust_word_class = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{200C}\x{200D})";

/// `text` as a pattern that matches exactly it.
std::string regex_quote(std::string_view text);

}  // namespace slipring
