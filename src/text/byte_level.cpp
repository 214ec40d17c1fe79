#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace slipring::byte_level {
namespace {

constexpr uint32_t largest_spelling = 0x143;

struct Tables {
  std::array<std::string, 256> spellings;
  std::array<int16_t, largest_spelling + 1> bytes{};

  Tables() {
    bytes.fill(-1);
    uint32_t next_free = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool itself =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
      const uint32_t code_point = itself ? byte : next_free++;
      utf8::append(spellings[byte], code_point);
      bytes[code_point] = static_cast<int16_t>(byte);
    }
  }
};

const Tables& tables() {
  static const Tables instance;
  return instance;
}

}  // namespace

const std::string& spelling(uint8_t byte) {
  return tables().spellings[byte];
}

std::optional<std::string> bytes_of(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const utf8::Step step = utf8::next(token.substr(at));
    if (step.kind != utf8::Step::Kind::character || step.code_point > largest_spelling) return std::nullopt;
    const int16_t byte = tables().bytes[step.code_point];
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    at += step.length;
  }
  return bytes;
}

}  // namespace slipring::byte_level
