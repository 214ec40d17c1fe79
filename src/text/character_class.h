// The few Unicode classes that are needed outside regular expressions.
#pragma once

#include <cstdint>

namespace slipring {

/// Unicode's White_Space property.
inline bool is_white_space(uint32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/// What Rust's \w matches.
bool is_word(uint32_t c);

}  // namespace slipring
