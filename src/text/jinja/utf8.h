// Code points of template strings. Invalid bytes count as one code point each and are kept as they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace slipring::jinja {

/// The code point at `at`, which moves past it. A byte that starts no valid sequence is returned as U+FFFD.
inline uint32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&text](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t first = byte(at++);
  if (first < 0x80) return first;
  const int more = first >= 0xf0 && first < 0xf5   ? 3
                   : first >= 0xe0 && first < 0xf0 ? 2
                   : first >= 0xc2 && first < 0xe0 ? 1
                                                   : 0;
  if (more == 0 || at + static_cast<size_t>(more) > text.size()) return 0xfffd;
  uint32_t code = first & (0x3fU >> more);
  for (int i = 0; i < more; ++i) {
    if ((byte(at + static_cast<size_t>(i)) & 0xc0U) != 0x80) return 0xfffd;
    code = (code << 6) | (byte(at + static_cast<size_t>(i)) & 0x3fU);
  }
  at += static_cast<size_t>(more);
  return code;
}

inline void append_code_point(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

/// What Python's str.isspace() says.
inline bool is_space(uint32_t code) {
  return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f ||
         code == 0x205f || code == 0x3000;
}

}  // namespace slipring::jinja
