#include "text/added_tokens.h"

#include "text/character_class.h"
#include "text/utf8.h"

namespace slipring {
namespace {

// Start of the character that ends at `end`. Stray continuation bytes count one by one.
size_t previous(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0U) == 0x80U) --begin;
  return utf8::next(text.substr(begin, end - begin)).length == end - begin ? begin : end - 1;
}

size_t without_trailing_space(std::string_view text, size_t begin, size_t end) {
  while (end > begin) {
    const size_t start = previous(text, end);
    const utf8::Step step = utf8::next(text.substr(start, end - start));
    if (start < begin || step.kind != utf8::Step::Kind::character || !is_white_space(step.code_point)) break;
    end = start;
  }
  return end;
}

size_t past_space(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const utf8::Step step = utf8::next(text.substr(begin));
    if (step.kind != utf8::Step::Kind::character || !is_white_space(step.code_point)) break;
    begin += step.length;
  }
  return begin;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const auto word_at = [text](size_t at) {
    const utf8::Step step = utf8::next(text.substr(at));
    return step.kind == utf8::Step::Kind::character && is_word(step.code_point);
  };
  return (begin == 0 || !word_at(previous(text, begin))) && (end == text.size() || !word_at(end));
}

}  // namespace

void AddedTokens::insert(AddedToken token) {
  if (token.content.empty()) return;
  int32_t node = -1;
  for (const char c : token.content) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t& child =
        node < 0 ? first_[byte] : children_.try_emplace(static_cast<uint64_t>(node) << 8 | byte, -1).first->second;
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back();
    }
    node = child;
  }
  Node& last = nodes_[static_cast<size_t>(node)];
  int32_t& entry = token.control ? last.control : last.plain;
  if (entry >= 0) return;
  entry = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(std::move(token));
}

const AddedToken* AddedTokens::longest_at(std::string_view text, size_t at, ControlTokens control) const {
  int32_t node = first_[static_cast<uint8_t>(text[at])];
  const AddedToken* best = nullptr;
  for (size_t end = at + 1; node >= 0; ++end) {
    const Node& here = nodes_[static_cast<size_t>(node)];
    const int32_t entry = here.control >= 0 && control == ControlTokens::parse ? here.control : here.plain;
    if (entry >= 0) best = &tokens_[static_cast<size_t>(entry)];
    if (end >= text.size()) break;
    const auto child = children_.find(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(text[end]));
    node = child == children_.end() ? -1 : child->second;
  }
  return best;
}

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text, ControlTokens control) const {
  std::vector<Part> parts;
  size_t done = 0;
  const auto plain = [&](size_t end) {
    if (end > done) parts.push_back({text.substr(done, end - done), -1});
  };
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    const AddedToken* token = longest_at(text, at, control);
    const size_t end = token == nullptr ? at : at + token->content.size();
    if (token == nullptr || (token->single_word && !stands_alone(text, at, end))) {
      ++at;
      continue;
    }
    const size_t begin = token->strip_left ? without_trailing_space(text, done, at) : at;
    const size_t stop = token->strip_right ? past_space(text, end) : end;
    plain(begin);
    parts.push_back({text.substr(begin, stop - begin), token->id});
    done = at = stop;
  }
  plain(text.size());
  return parts;
}

}  // namespace slipring
