#include <slipring/error.h>

namespace slipring {
namespace {

/// Text from files and prompts may hold anything. An error stays one line, without bytes that a terminal obeys: the
/// control characters of ASCII and, as UTF-8 spells them (C2 80 to C2 9F), of Latin 1.
std::string printable(std::string line) {
  const auto byte = [&line](size_t i) { return static_cast<unsigned char>(line[i]); };
  for (size_t i = 0; i < line.size(); ++i) {
    if (byte(i) < 0x20 || byte(i) == 0x7F) line[i] = ' ';
    if (byte(i) == 0xC2 && i + 1 < line.size() && byte(i + 1) >= 0x80 && byte(i + 1) < 0xA0)
      line[i] = line[i + 1] = ' ';
  }
  return line;
}

/// The start of a text that came from a file and may be of any length; cut between characters.
std::string shortened(const std::string& text) {
  constexpr size_t kMost = 1000;
  if (text.size() <= kMost) return text;
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::string one_line(const ErrorInfo& info) {
  std::string line = info.where;
  const auto append = [&line](std::string_view separator, std::string_view lead, const std::string& text) {
    if (text.empty()) return;
    if (!line.empty()) line += separator;
    line += lead;
    line += text;
  };
  append(": ", "", shortened(info.got));
  append(info.got.empty() ? ": " : ", ", "expected ", info.expected);
  append("; ", "", info.advice);
  return printable(line);
}

}  // namespace

Error::Error(ErrorCode code, ErrorInfo info)
    : std::runtime_error(one_line(info)), code_(code), info_(std::move(info)) {}

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::shape_mismatch:
      return "shape_mismatch";
    case ErrorCode::dtype_mismatch:
      return "dtype_mismatch";
    case ErrorCode::ring_write_wraps:
      return "ring_write_wraps";
    case ErrorCode::write_first_needs_single_token:
      return "write_first_needs_single_token";
    case ErrorCode::context_full:
      return "context_full";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::bad_file:
      return "bad_file";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::io:
      return "io";
    case ErrorCode::mismatch:
      return "mismatch";
    case ErrorCode::non_finite:
      return "non_finite";
    case ErrorCode::cancelled:
      return "cancelled";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

int exit_status(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::context_full:
    case ErrorCode::not_found:
    case ErrorCode::unsupported:
    case ErrorCode::mismatch:
      return 2;
    case ErrorCode::cancelled:
      return 130;
    default:
      return 1;
  }
}

}  // namespace slipring
