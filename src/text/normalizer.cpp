#include "text/normalizer.h"

#include "text/character_class.h"
#include "text/utf8.h"

namespace slipring {
namespace {

std::string replace_literal(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
    out.append(text.substr(done, at - done)).append(to);
    done = at + from.size();
  }
  return out.append(text.substr(done));
}

std::string replace_pattern(std::string_view text, const Regex& pattern, std::string_view to) {
  std::string out;
  size_t done = 0;
  Regex::Search search(pattern, text);
  while (const auto match = search.next()) {
    out.append(text.substr(done, match->begin - done)).append(to);
    done = match->end;
  }
  return out.append(text.substr(done));
}

std::string strip(std::string_view text, bool left, bool right) {
  size_t first = text.size();
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const utf8::Step step = utf8::next(text.substr(at));
    if (!is_white_space(step.code_point)) {
      first = std::min(first, at);
      end = at + step.length;
    }
    at += step.length;
  }
  if (first == text.size()) return left || right ? std::string() : std::string(text);
  const size_t begin = left ? first : 0;
  return std::string(text.substr(begin, (right ? end : text.size()) - begin));
}

}  // namespace

std::string Normalizer::apply(std::string_view text, bool at_front) const {
  std::string out(text);
  for (const NormalizerStep& step : steps_) {
    switch (step.kind) {
      case NormalizerStep::Kind::replace:
        out =
            step.pattern ? replace_pattern(out, *step.pattern, step.text) : replace_literal(out, step.from, step.text);
        break;
      case NormalizerStep::Kind::prepend:
        if (at_front && !out.empty()) out.insert(0, step.text);
        break;
      case NormalizerStep::Kind::strip:
        out = strip(out, step.strip_left, step.strip_right);
        break;
    }
  }
  return out;
}

}  // namespace slipring
