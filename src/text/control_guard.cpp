#include "text/control_guard.h"

#include <algorithm>

#include <slipring/error.h>

namespace slipring {
namespace {

// U+FDD0 ... U+FDEF are noncharacters: reserved for a program's own use, never text.
constexpr int kMarks = 32;
std::string mark_text(int index) {
  return {static_cast<char>(0xef), static_cast<char>(0xb7), static_cast<char>(0x90 + index)};
}

// JSON can spell the mark as an escape as well.
bool holds_escaped(std::string_view text, int index) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const std::string wanted = {'f', 'd', index < 16 ? 'd' : 'e', kHex[static_cast<size_t>(index % 16)]};
  for (size_t at = text.find("\\u"); at != std::string_view::npos; at = text.find("\\u", at + 1)) {
    std::string digits(text.substr(at + 2, 4));
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c; });
    if (digits == wanted) return true;
  }
  return false;
}

}  // namespace

ControlGuard::ControlGuard(const Tokenizer& tokenizer, const std::vector<std::string_view>& texts)
    : tokenizer_(tokenizer) {
  for (int64_t id = 0; id < tokenizer.size(); ++id) {
    if (!tokenizer.is_control(static_cast<TokenId>(id))) continue;
    const std::string& spelling = tokenizer.token_text(static_cast<TokenId>(id));
    if (spelling.empty()) continue;
    spellings_[static_cast<unsigned char>(spelling[0])].push_back(spelling);
    longest_ = std::max(longest_, spelling.size());
  }
  for (auto& bucket : spellings_) {
    std::sort(bucket.begin(), bucket.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  }
  for (int i = 0; i < kMarks && mark_.empty(); ++i) {
    const std::string candidate = mark_text(i);
    const bool used = std::any_of(texts.begin(), texts.end(), [&](std::string_view text) {
      return text.find(candidate) != std::string_view::npos || holds_escaped(text, i);
    });
    if (!used) mark_ = candidate;
  }
  if (mark_.empty()) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "messages", .expected = "text", .got = "all 32 noncharacters U+FDD0 to U+FDEF at once"});
  }
}

size_t ControlGuard::control_at(std::string_view text, size_t at) const {
  for (const std::string& spelling : spellings_[static_cast<unsigned char>(text[at])]) {
    if (text.compare(at, spelling.size(), spelling) == 0) return spelling.size();
  }
  return 0;
}

bool ControlGuard::beginning_at(std::string_view text, size_t at) const {
  const std::string_view rest = text.substr(at);
  const auto& bucket = spellings_[static_cast<unsigned char>(text[at])];
  return std::any_of(bucket.begin(), bucket.end(), [rest](const std::string& spelling) {
    return spelling.size() > rest.size() && spelling.compare(0, rest.size(), rest) == 0;
  });
}

bool ControlGuard::needs(std::string_view text) const {
  for (size_t at = 0; at < text.size(); ++at) {
    if (control_at(text, at) > 0) return true;
    if (text.size() - at < longest_ && beginning_at(text, at)) return true;
  }
  return false;
}

std::string ControlGuard::protect(std::string_view text) const {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool marked = control_at(text, at) > 0 || (text.size() - at < longest_ && beginning_at(text, at));
    out += text[at];
    if (!marked) continue;
    // Behind the first character, whole: a mark inside of one would break it.
    while (at + 1 < text.size() && (static_cast<unsigned char>(text[at + 1]) & 0xc0U) == 0x80) out += text[++at];
    out += mark_;
  }
  return out;
}

std::vector<TokenId> ControlGuard::encode(const std::string& rendered) const {
  if (rendered.find(mark_) == std::string::npos) return tokenizer_.encode(rendered, ControlTokens::parse);
  std::vector<TokenId> ids;
  const auto append = [&](std::string_view text, ControlTokens control) {
    if (text.empty()) return;
    const auto more = tokenizer_.encode(text, control);
    ids.insert(ids.end(), more.begin(), more.end());
  };
  // Stretches between the scaffold's control tokens; those with marks are text through and through.
  size_t parsed_from = 0;
  size_t start = 0;
  const auto finish_stretch = [&](size_t end) {
    std::string stretch = rendered.substr(start, end - start);
    if (stretch.find(mark_) == std::string::npos) return;
    append(std::string_view(rendered).substr(parsed_from, start - parsed_from), ControlTokens::parse);
    for (size_t hit = stretch.find(mark_); hit != std::string::npos; hit = stretch.find(mark_, hit)) {
      stretch.erase(hit, mark_.size());
    }
    append(stretch, ControlTokens::as_text);
    parsed_from = end;
  };
  for (size_t at = 0; at < rendered.size();) {
    const size_t length = control_at(rendered, at);
    if (length == 0) {
      ++at;
      continue;
    }
    finish_stretch(at);
    at += length;
    start = at;
  }
  finish_stretch(rendered.size());
  append(std::string_view(rendered).substr(parsed_from), ControlTokens::parse);
  return ids;
}

}  // namespace slipring
