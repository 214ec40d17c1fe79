#include "text/pre_tokenizer.h"

#include <utility>

namespace slipring {
namespace {

std::string with_spaces_as(std::string_view text, std::string_view replacement) {
  std::string out;
  out.reserve(text.size() * 2);
  for (const char c : text) {
    if (c == ' ') {
      out += replacement;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void split_by(const PreTokenizerStage& stage, std::string_view text, Regex::Effort& effort,
              std::vector<std::string_view>& pieces) {
  // First the text as delimiters and what lies between them, then what the behavior makes of these.
  std::vector<std::pair<std::string_view, bool>> spans;  // second: is a delimiter
  const auto add = [&](size_t begin, size_t end, bool match) {
    if (end > begin) spans.emplace_back(text.substr(begin, end - begin), match != stage.invert);
  };
  size_t done = 0;
  Regex::Search search(*stage.pattern, text, effort);
  while (const auto match = search.next()) {
    add(done, match->begin, false);
    add(match->begin, match->end, true);
    done = match->end;
  }
  add(done, text.size(), false);

  const auto append_to_last = [&](std::string_view span) {
    pieces.back() = {pieces.back().data(), pieces.back().size() + span.size()};
  };
  const size_t first = pieces.size();
  bool previous_was_delimiter = false;
  for (const auto& [span, delimiter] : spans) {
    bool join = false;
    switch (stage.behavior) {
      case SplitBehavior::removed:
        if (delimiter) continue;
        break;
      case SplitBehavior::isolated:
        break;
      case SplitBehavior::merged_with_previous:
        join = delimiter && !previous_was_delimiter;
        break;
      case SplitBehavior::merged_with_next:
        join = !delimiter && previous_was_delimiter;
        break;
      case SplitBehavior::contiguous:
        join = delimiter == previous_was_delimiter;
        break;
    }
    if (join && pieces.size() > first) {
      append_to_last(span);
    } else {
      pieces.push_back(span);
    }
    previous_was_delimiter = delimiter;
  }
}

std::vector<std::string_view> PreTokenizer::split(std::string_view text, bool at_front, bool at_start,
                                                  std::deque<std::string>& rewritten, Regex::Effort& effort) const {
  std::vector<std::string_view> pieces{text};
  for (const PreTokenizerStage& stage : stages_) {
    std::vector<std::string_view> next;
    bool front = at_front;
    for (const std::string_view piece : pieces) {
      const bool may_prefix = stage.only_first ? front && at_front && at_start : at_front;
      if (stage.kind == PreTokenizerStage::Kind::split) {
        split_by(stage, piece, effort, next);
      } else if (stage.kind == PreTokenizerStage::Kind::spaces) {
        next.push_back(rewritten.emplace_back(with_spaces_as(piece, stage.text)));
      } else if (may_prefix && !piece.starts_with(stage.text)) {
        next.push_back(rewritten.emplace_back(stage.text + std::string(piece)));
      } else {
        next.push_back(piece);
      }
      front = false;
    }
    pieces = std::move(next);
  }
  return pieces;
}

}  // namespace slipring
