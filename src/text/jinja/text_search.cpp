#include "text/jinja/text_search.h"

#include <cstring>

namespace slipring::jinja {

TextSearch::TextSearch(Renderer& renderer, std::string_view text, std::string_view part, bool from_right)
    : text_(text), part_(part), from_right_(from_right) {
  renderer.work(text.size() + part.size());
  if (!from_right || part.size() > text.size()) return;
  renderer.charge(text.size());
  reversed_text_.assign(text.rbegin(), text.rend());
  reversed_part_.assign(part.rbegin(), part.rend());
  text_ = reversed_text_;
  part_ = reversed_part_;
}

size_t TextSearch::next() {
  if (at_ > text_.size() || part_.size() > text_.size() - at_) return std::string::npos;
  // For parts of more than 256 bytes the C library takes the two-way algorithm, linear whatever the strings are.
  const void* found = ::memmem(text_.data() + at_, text_.size() - at_, part_.data(), part_.size());
  if (found == nullptr) {
    at_ = text_.size() + 1;
    return std::string::npos;
  }
  const auto hit = static_cast<size_t>(static_cast<const char*>(found) - text_.data());
  at_ = hit + part_.size();
  return from_right_ ? text_.size() - at_ : hit;
}

size_t find_text(Renderer& renderer, std::string_view text, std::string_view part, bool last) {
  if (part.empty()) return last ? text.size() : 0;
  return TextSearch(renderer, text, part, last).next();
}

}  // namespace slipring::jinja
