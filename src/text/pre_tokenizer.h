// Cuts text into the pieces that byte-pair encoding never joins across.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace slipring {

/// What becomes of the matches of a split rule. The names are those of tokenizer.json.
enum class SplitBehavior : uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// One stage; stages run one after the other, each on every piece of the one before.
struct PreTokenizerStage {
  enum class Kind : uint8_t {
    split,   ///< cut at the matches of `pattern`
    spaces,  ///< spaces become `text`
    prefix   ///< put `text` in front of a piece that does not begin with it
  };
  Kind kind = Kind::split;
  std::shared_ptr<const Regex> pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  ///< the gaps between the matches are the delimiters instead
  std::string text;
  bool only_first = false;  ///< prefix: only at the very start of the text
};

class PreTokenizer {
 public:
  void add(PreTokenizerStage stage) { stages_.push_back(std::move(stage)); }
  size_t size() const noexcept { return stages_.size(); }

  /// @param text valid UTF-8
  /// @param at_front  whether `text` begins a stretch between added tokens (else nothing is put in front)
  /// @param at_start  whether that stretch is the first of the whole text
  /// @param rewritten holds pieces that are not part of `text`; the pieces live as long as both
  /// @param effort what the patterns may take
  /// @throws as Regex::Search::next()
  std::vector<std::string_view> split(std::string_view text, bool at_front, bool at_start,
                                      std::deque<std::string>& rewritten, Regex::Effort& effort) const;

 private:
  std::vector<PreTokenizerStage> stages_;
};

/// The pieces of one split stage, for one text.
void split_by(const PreTokenizerStage& stage, std::string_view text, Regex::Effort& effort,
              std::vector<std::string_view>& pieces);

}  // namespace slipring
