// Reads little-endian numbers and strings from untrusted bytes; never past their end.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "formats/format_error.h"

namespace slipring {

static_assert(std::endian::native == std::endian::little, "file formats are read by copying little-endian bytes");

/// Loads a little-endian T from bytes that need no alignment. @pre sizeof(T) readable bytes
template <class T>
T load(const std::byte* bytes) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

/// A position in a file's bytes. Every read checks what is left first; failures are Error{bad_file} that name the file,
/// what was being read, and both numbers.
class ByteCursor {
 public:
  ByteCursor(std::span<const std::byte> bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  uint64_t position() const noexcept { return position_; }
  uint64_t left() const noexcept { return bytes_.size() - position_; }
  const std::string& where() const noexcept { return where_; }

  std::span<const std::byte> take(uint64_t count, std::string_view what) {
    if (count > left()) {
      throw_bad_file(where_, fmt::format("the file ends at byte {}", bytes_.size()),
                     fmt::format("{} bytes of {} at byte {}", count, what, position_),
                     "the file is cut short or damaged; fetch it again");
    }
    const auto out = bytes_.subspan(position_, count);
    position_ += count;
    return out;
  }
  template <class T>
  T number(std::string_view what) {
    return load<T>(take(sizeof(T), what).data());
  }
  /// A string with its 64-bit length in front.
  std::string_view string(std::string_view what, uint64_t max_bytes) {
    const auto length = number<uint64_t>(what);
    if (length > max_bytes) {
      throw_bad_file(where_, fmt::format("{} of {} bytes at byte {}", what, length, position_),
                     fmt::format("at most {} bytes", max_bytes));
    }
    const auto text = take(length, what);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& where_;
  uint64_t position_ = 0;
};

}  // namespace slipring
