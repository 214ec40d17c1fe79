// The one exception type of slipring: every failure that a caller can meet arrives as a slipring::Error.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace slipring {

/// What kind of failure it was. The CLI maps these to exit statuses and the server to HTTP statuses (exit_status()).
enum class ErrorCode : uint8_t {
  invalid_argument,                ///< a value outside its documented range
  shape_mismatch,                  ///< tensor shapes that do not fit together
  dtype_mismatch,                  ///< tensor element types that do not fit together
  ring_write_wraps,                ///< RingKVCache::update() past the end of the ring
  write_first_needs_single_token,  ///< the write-first path with query_len > 1 and a ring
  context_full,                    ///< more tokens than the model's or the session's context holds
  not_found,                       ///< a file, key or tensor that is not there
  bad_file,                        ///< a file whose bytes are not what its format says
  unsupported,                     ///< well-formed, but nothing slipring can run
  io,                              ///< the operating system refused a read or a write
  mismatch,       ///< two things that must belong together do not (drafter and target, snapshot and model)
  non_finite,     ///< NaN or infinity where a number is needed
  cancelled,      ///< the caller asked to stop
  out_of_memory,  ///< an allocation failed
  internal,       ///< a bug in slipring
};

/// Stable lower-case name of a code, for logs, JSON and scripts.
std::string_view to_string(ErrorCode code) noexcept;

/// Exit status of the command line for a code: 1 failed while running, 2 the caller must change something, 130
/// cancelled.
int exit_status(ErrorCode code) noexcept;

/// The parts of an error. Empty parts are left out of the message.
struct ErrorInfo {
  std::string where{};     ///< file, field, flag, function or tensor
  std::string expected{};  ///< what would have been right
  std::string got{};       ///< what was there instead, with its numbers
  std::string advice{};    ///< what to do about it
};

/// One line: "where: got X, expected Y; advice". Thread-safe like any exception.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, ErrorInfo info);

  ErrorCode code() const noexcept { return code_; }
  const ErrorInfo& info() const noexcept { return info_; }

 private:
  ErrorCode code_;
  ErrorInfo info_;
};

}  // namespace slipring
