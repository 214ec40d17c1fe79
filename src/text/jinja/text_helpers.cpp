// What filters and methods of strings share.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/utf8.h"

namespace slipring::jinja {

std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> letters;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    next_code_point(text, at);
    letters.push_back(text.substr(start, at - start));
  }
  return letters;
}

size_t count_characters(const std::string& text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) next_code_point(text, at);
  return count;
}

std::string strip(const std::string& text, const std::string* wanted, bool left, bool right) {
  std::vector<uint32_t> set;
  if (wanted != nullptr) {
    for (size_t at = 0; at < wanted->size();) set.push_back(next_code_point(*wanted, at));
  }
  const auto goes = [&](uint32_t code) {
    return wanted == nullptr ? is_space(code) : std::find(set.begin(), set.end(), code) != set.end();
  };
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
    for (const std::string& letter : characters(text)) {
      if (count < 0 || done++ < count) add(to);
      add(letter);
    }
    if (count < 0 || done < count) add(to);
  } else {
    for (size_t hit = text.find(from); hit != std::string::npos && (count < 0 || done < count);
         hit = text.find(from, at)) {
      add(std::string_view(text).substr(at, hit - at));
      add(to);
      at = hit + from.size();
      ++done;
    }
    add(std::string_view(text).substr(at));
  }
  renderer.charge(out.size());
  return out;
}

}  // namespace slipring::jinja
