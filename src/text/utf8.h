// UTF-8, one character at a time, with the Unicode standard's rule for invalid bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace slipring::utf8 {

/// What stands at the front of some bytes.
struct Step {
  enum class Kind : uint8_t {
    character,  ///< a whole, well-formed character
    invalid,    ///< a maximal subpart of an ill-formed sequence: one U+FFFD when shown
    cut         ///< well-formed so far, but the bytes end before the character does
  };
  Kind kind = Kind::invalid;
  uint32_t code_point = 0;  ///< of a character
  size_t length = 0;        ///< bytes it takes; at least 1
};

/// The first step of `bytes`, which must not be empty.
/// Source: The Unicode Standard 15, section 3.9, table 3-7 and "U+FFFD substitution of maximal subparts".
Step next(std::string_view bytes) noexcept;

/// Bytes of the longest well-formed prefix.
size_t valid_prefix(std::string_view bytes) noexcept;

void append(std::string& text, uint32_t code_point);

/// U+FFFD, encoded.
inline constexpr std::string_view replacement = "\xEF\xBF\xBD";

}  // namespace slipring::utf8
