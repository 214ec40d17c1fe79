#include "text/utf8.h"

namespace slipring::utf8 {
namespace {

struct Lead {
  size_t length;         // 0: never starts a character
  uint8_t second_least;  // bounds of the second byte: they exclude overlong forms, surrogates and > U+10FFFF
  uint8_t second_most;
};

Lead lead_of(uint8_t byte) noexcept {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Step next(std::string_view bytes) noexcept {
  const auto first = static_cast<uint8_t>(bytes[0]);
  const Lead lead = lead_of(first);
  if (lead.length == 1) return {Step::Kind::character, first, 1};
  if (lead.length == 0) return {Step::Kind::invalid, 0, 1};
  uint32_t code_point = first & (0xFFU >> (lead.length + 1));
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {Step::Kind::cut, 0, i};
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t least = i == 1 ? lead.second_least : 0x80;
    const uint8_t most = i == 1 ? lead.second_most : 0xBF;
    if (byte < least || byte > most) return {Step::Kind::invalid, 0, i};
    code_point = code_point << 6 | (byte & 0x3FU);
  }
  return {Step::Kind::character, code_point, lead.length};
}

size_t valid_prefix(std::string_view bytes) noexcept {
  size_t at = 0;
  while (at < bytes.size()) {
    const Step step = next(bytes.substr(at));
    if (step.kind != Step::Kind::character) break;
    at += step.length;
  }
  return at;
}

void append(std::string& text, uint32_t code_point) {
  const auto put = [&text](uint32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace slipring::utf8
