// Tokens to the text that a reader sees: whole characters, and nothing from a stop string on.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <slipring/tokenizer.h>

namespace slipring {

/// Streams what is certain: a character is held back until it is whole, and text that may be the start of a stop string
/// until it is known not to be. Threads: one at a time.
class TextOutput {
 public:
  TextOutput(std::shared_ptr<const Tokenizer> tokenizer, const std::vector<std::string>& stops)
      : detokenizer_(std::move(tokenizer)), stops_(stops) {}

  /// Text that became certain with this token; may be empty.
  std::string add(TokenId id) { return filter(detokenizer_.add(id), false); }
  /// The held-back tail, once, at the end.
  std::string finish() { return filter(detokenizer_.finish(), true); }
  /// True once a stop string appeared; nothing is emitted from there on.
  bool stopped() const noexcept { return stopped_; }

 private:
  std::string filter(std::string piece, bool end);

  Detokenizer detokenizer_;
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace slipring
