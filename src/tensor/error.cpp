#include <slipring/error.h>

namespace slipring {
namespace {

std::string one_line(const ErrorInfo& info) {
  std::string line = info.where;
  const auto append = [&line](std::string_view separator, std::string_view lead, const std::string& text) {
    if (text.empty()) return;
    if (!line.empty()) line += separator;
    line += lead;
    line += text;
  };
  append(": ", "", info.got);
  append(info.got.empty() ? ": " : ", ", "expected ", info.expected);
  append("; ", "", info.advice);
  // Text from files and prompts may hold anything; an error stays one line.
  for (char& c : line) {
    if (c == '\n' || c == '\r' || c == '\0') c = ' ';
  }
  return line;
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
    default:
      return 1;
  }
}

}  // namespace slipring
