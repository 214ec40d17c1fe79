// Builds file bytes field by field, for tests that need them odd. Test use only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>

#include <slipring/error.h>

#include "formats/temp_folder.h"

namespace slipring::testing {

/// Little-endian bytes in the order of the calls.
class Bytes {
 public:
  template <class T>
  Bytes& number(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Bytes& u32(uint32_t value) { return number(value); }
  Bytes& u64(uint64_t value) { return number(value); }
  Bytes& raw(std::string_view bytes) {
    out_.append(bytes);
    return *this;
  }
  /// GGUF string: 64-bit length, then the text.
  Bytes& string(std::string_view text) { return u64(text.size()).raw(text); }
  Bytes& zeros(size_t count) {
    out_.append(count, '\0');
    return *this;
  }
  Bytes& align(size_t alignment) {
    while (out_.size() % alignment != 0) out_ += '\0';
    return *this;
  }
  /// GGUF preamble.
  static Bytes gguf(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    Bytes bytes;
    bytes.raw("GGUF").u32(version).u64(tensors).u64(keys);
    return bytes;
  }
  const std::string& str() const noexcept { return out_; }
  size_t size() const noexcept { return out_.size(); }
  std::span<const std::byte> span() const noexcept {
    return {reinterpret_cast<const std::byte*>(out_.data()), out_.size()};
  }

 private:
  std::string out_;
};

/// Runs `action`, which must throw an Error of that code with one line that holds every one of `parts`.
template <class Action>
void expect_error(ErrorCode code, std::initializer_list<std::string_view> parts, Action action) {
  try {
    action();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(to_string(error.code()), to_string(code)) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const std::string_view part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
    return;
  }
  ADD_FAILURE() << "no error";
}

}  // namespace slipring::testing
