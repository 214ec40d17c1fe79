// Ends a text in front of the first stop string, while it is being written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace slipring {

/// Watches a growing text for stop strings.
///
/// Text goes in by pieces, however cut, and comes out as soon as it cannot be part of a stop string: exactly the
/// longest tail that is a proper prefix of some stop string is held back. The stop string that ends first is the one
/// that counts; of several that end together, the longest. What came out, joined, is the same for every way of cutting.
/// Time: linear in the text, whatever the number of stop strings.
/// Threads: one text, one matcher; copies are independent and share the table.
/// Source: Aho and Corasick 1975, "Efficient string matching".
class StopStrings {
 public:
  /// No stop strings: everything comes out at once.
  StopStrings();
  /// @param strings empty ones are ignored; 16 MiB together at most
  /// @throws Error{invalid_argument} for more, or for a string that is not valid UTF-8 (it could only ever match a part
  ///         of a character)
  explicit StopStrings(const std::vector<std::string>& strings);

  /// @param text the next piece, whole UTF-8 characters
  /// @returns what is certain to belong to the output now; empty once stopped
  std::string add(std::string_view text);
  /// The text held back, once, when nothing follows: it turned out to be no stop string.
  std::string finish();
  /// Whether a stop string was found. It and all that follows it never come out.
  bool stopped() const noexcept { return stopped_; }
  /// Bytes held back.
  size_t held() const noexcept { return held_.size(); }

 private:
  struct Table;
  std::shared_ptr<const Table> table_;
  int32_t state_ = 0;  ///< the longest tail that begins a stop string
  std::string held_;
  bool stopped_ = false;
};

}  // namespace slipring
