// Keeps what users wrote from becoming control tokens when it is tokenized together with a template's scaffold.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <slipring/tokenizer.h>

namespace slipring {

/// Marks the spellings of control tokens in user text with a character that no user text holds, lets the template work
/// on the marked text, and takes the marks out while encoding. A template that looks at its input sees ordinary text:
/// only a control token's spelling is interrupted, after its first character.
class ControlGuard {
 public:
  /// @param texts  all user text, raw (JSON will do): the mark is a Unicode noncharacter that none of them holds
  /// @throws Error{invalid_argument} if they hold all 32 of them
  ControlGuard(const Tokenizer& tokenizer, const std::vector<std::string_view>& texts);

  /// Whether `text` spells a control token, or ends in the beginning of one that the scaffold could complete.
  bool needs(std::string_view text) const;
  std::string protect(std::string_view text) const;
  /// Ids of a rendered prompt: control tokens outside of marks are parsed, all else is text.
  std::vector<TokenId> encode(const std::string& rendered) const;

 private:
  // Length of the longest control token that starts at `at`; 0 for none.
  size_t control_at(std::string_view text, size_t at) const;
  // Whether the text from `at` to its end is a proper beginning of a control token.
  bool beginning_at(std::string_view text, size_t at) const;

  const Tokenizer& tokenizer_;
  std::array<std::vector<std::string>, 256> spellings_;  // by first byte, longest first
  size_t longest_ = 0;
  std::string mark_;
};

}  // namespace slipring
