// Tokens to the text that a reader sees: whole characters, and nothing from a stop string on.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <slipring/stop_strings.h>
#include <slipring/tokenizer.h>

namespace slipring {

/// Streams what is certain: a character is held back until it is whole, and text that may be the start of a stop string
/// until it is known not to be. Threads: one at a time.
class TextOutput {
 public:
  TextOutput(std::shared_ptr<const Tokenizer> tokenizer, const std::vector<std::string>& stops)
      : detokenizer_(std::move(tokenizer)), stops_(stops) {}

  /// Text that became certain with this token; may be empty.
  std::string add(TokenId id) { return stops_.add(detokenizer_.add(id)); }
  /// The held-back tail, once, at the end.
  std::string finish() {
    std::string text = stops_.add(detokenizer_.finish());
    return text + stops_.finish();
  }
  /// True once a stop string appeared; nothing is emitted from there on.
  bool stopped() const noexcept { return stops_.stopped(); }

 private:
  Detokenizer detokenizer_;
  StopStrings stops_;
};

}  // namespace slipring
