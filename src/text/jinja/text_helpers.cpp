// What filters and methods of strings share.
#include <unordered_set>

#include "text/jinja/builtins.h"
#include "text/jinja/text_search.h"
#include "text/jinja/utf8.h"

namespace slipring::jinja {

Letters::Letters(Renderer& renderer, std::string_view text) : text_(text) {
  renderer.work(text.size());
  const size_t count = count_characters(text);
  if (count == text.size()) return;
  renderer.charge(count * sizeof(uint32_t));
  starts_.reserve(count);
  for (size_t at = 0; at < text.size(); next_code_point(text, at)) starts_.push_back(static_cast<uint32_t>(at));
}

std::string_view Letters::operator[](size_t index) const {
  if (starts_.empty()) return text_.substr(index, 1);
  const size_t end = index + 1 < starts_.size() ? starts_[index + 1] : text_.size();
  return text_.substr(starts_[index], end - starts_[index]);
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) next_code_point(text, at);
  return count;
}

std::string strip(Renderer& renderer, const std::string& text, const std::string* wanted, bool left, bool right) {
  renderer.work(text.size());
  std::unordered_set<uint32_t> set;
  if (wanted != nullptr) {
    renderer.work(4 * wanted->size());
    for (size_t at = 0; at < wanted->size();) set.insert(next_code_point(*wanted, at));
  }
  const auto goes = [&](uint32_t code) { return wanted == nullptr ? is_space(code) : set.count(code) != 0; };
  size_t begin = 0;
  while (left && begin < text.size()) {
    size_t at = begin;
    if (!goes(next_code_point(text, at))) break;
    begin = at;
  }
  size_t end = text.size();
  while (right && end > begin) {
    size_t start = end - 1;
    while (start > begin && (static_cast<unsigned char>(text[start]) & 0xc0U) == 0x80) --start;
    size_t at = start;
    if (!goes(next_code_point(text, at)) || at != end) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

std::string ascii_case(std::string text, bool upper) {
  for (char& c : text) {
    if (upper && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    if (!upper && c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::string capitalize(const std::string& text) {
  std::string out = ascii_case(text, false);
  if (!out.empty()) out[0] = ascii_case(out.substr(0, 1), true)[0];
  return out;
}

std::string title(const std::string& text) {
  std::string out;
  bool inside = false;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
    out += ascii_case(std::string(1, c), !inside);
    inside = letter;
  }
  return out;
}

std::string replace_all(Renderer& renderer, const std::string& text, const std::string& from, const std::string& to,
                        int64_t count) {
  std::string out;
  size_t at = 0;
  int64_t done = 0;
  const auto add = [&](std::string_view piece) {
    out += piece;
    if (out.size() > renderer.limits().output_bytes) renderer.charge(out.size());
  };
  if (from.empty()) {
    // Python puts `to` around every character.
    for (size_t end = 0; end < text.size();) {
      const size_t begin = end;
      next_code_point(text, end);
      if (count < 0 || done++ < count) add(to);
      add(std::string_view(text).substr(begin, end - begin));
    }
    if (count < 0 || done < count) add(to);
  } else {
    TextSearch search(renderer, text, from);
    for (size_t hit = search.next(); hit != std::string::npos && (count < 0 || done < count); hit = search.next()) {
      add(std::string_view(text).substr(at, hit - at));
      add(to);
      at = hit + from.size();
      ++done;
    }
    add(std::string_view(text).substr(at));
  }
  return out;
}

}  // namespace slipring::jinja
