#include "formats/format_error.h"

#include <cerrno>
#include <fmt/format.h>
#include <system_error>

namespace slipring {

std::string in_quotes(std::string_view text) {
  constexpr size_t kMaxShown = 80;
  std::string out = "'";
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  out += text.size() > kMaxShown ? "...'" : "'";
  return out;
}

void throw_bad_file(std::string where, std::string got, std::string expected, std::string advice) {
  throw Error(
      ErrorCode::bad_file,
      {.where = std::move(where), .expected = std::move(expected), .got = std::move(got), .advice = std::move(advice)});
}

void throw_unsupported(std::string where, std::string got, std::string expected, std::string advice) {
  throw Error(
      ErrorCode::unsupported,
      {.where = std::move(where), .expected = std::move(expected), .got = std::move(got), .advice = std::move(advice)});
}

void throw_system_error(std::string where, std::string_view what, int error_number, std::string advice) {
  const bool absent = error_number == ENOENT || error_number == ENOTDIR;
  throw Error(absent ? ErrorCode::not_found : ErrorCode::io,
              {.where = std::move(where),
               .expected = {},
               .got = fmt::format("{}: {}", what, std::generic_category().message(error_number)),
               .advice = std::move(advice)});
}

}  // namespace slipring
