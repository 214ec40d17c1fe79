// Errors about files: one way to build them, and one way to show text that came from a file.
#pragma once

#include <string>
#include <string_view>

#include <slipring/error.h>

namespace slipring {

/// Text of a file in quotes, safe for one line of a log: at most 80 bytes, everything but printable ASCII as \xNN.
std::string in_quotes(std::string_view text);

[[noreturn]] void throw_bad_file(std::string where, std::string got, std::string expected, std::string advice = {});
[[noreturn]] void throw_unsupported(std::string where, std::string got, std::string expected, std::string advice = {});
/// Error{io} (or not_found for ENOENT and ENOTDIR) with the system's own words for `error_number`.
[[noreturn]] void throw_system_error(std::string where, std::string_view what, int error_number,
                                     std::string advice = {});

}  // namespace slipring
