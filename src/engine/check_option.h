// One way to refuse an option of Session or Scheduler.
#pragma once

#include <cstdint>
#include <string>

#include <slipring/error.h>

namespace slipring {

/// @param name  whose option it is, and which: "session option chunk"
/// @throws Error{invalid_argument} unless `sound`
inline void check_option(bool sound, const std::string& name, const std::string& expected, int64_t got) {
  if (sound) return;
  throw Error(ErrorCode::invalid_argument,
              {.where = name, .expected = expected, .got = std::to_string(got), .advice = {}});
}

}  // namespace slipring
