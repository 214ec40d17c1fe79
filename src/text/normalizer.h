// What a tokenizer does to a text before it looks for pieces in it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace slipring {

/// One step of normalisation.
struct NormalizerStep {
  enum class Kind : uint8_t {
    replace,  ///< every match of `pattern` becomes `text`
    prepend,  ///< `text` goes in front, unless there is nothing
    strip,    ///< white space at the ends goes
    compose   ///< Unicode's canonical composition, NFC
  };
  Kind kind = Kind::replace;
  std::shared_ptr<const Regex> pattern;  ///< of a replace; null: `from`, literally
  std::string from;
  std::string text;
  bool strip_left = false;
  bool strip_right = false;
};

class Normalizer {
 public:
  /// A normalised text has at most this many bytes for each of its own, and a few more.
  static constexpr size_t kMostGrowth = 16;
  static constexpr size_t kAlwaysAllowed = 4096;

  void add(NormalizerStep step) { steps_.push_back(std::move(step)); }
  /// @param text valid UTF-8
  /// @param effort what the patterns may take; @throws also as Regex::Search::next()
  /// @throws Error{unsupported} if the steps make the text longer than it may become
  /// @param at_front false for the rest of a stretch that invalid bytes cut in two: nothing is put in front of it
  std::string apply(std::string_view text, bool at_front, Regex::Effort& effort) const;
  bool empty() const noexcept { return steps_.empty(); }
  size_t size() const noexcept { return steps_.size(); }

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace slipring
