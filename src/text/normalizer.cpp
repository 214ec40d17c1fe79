#include "text/normalizer.h"

#include <cstdlib>
#include <fmt/format.h>
#include <memory>
#include <new>
#include <utf8proc.h>

#include <slipring/error.h>

#include "text/character_class.h"
#include "text/utf8.h"

namespace slipring {
namespace {

// Each step of a hostile file could multiply the text.
void check_growth(size_t size, size_t limit) {
  if (size <= limit) return;
  throw Error(ErrorCode::unsupported, {.where = "tokenizer's normalizer",
                                       .expected = fmt::format("text that grows to at most {} bytes", limit),
                                       .got = "more",
                                       .advice = "this is no tokenizer of a known model"});
}

// A text that replacements make longer, up to a limit.
class Replaced {
 public:
  Replaced(std::string_view text, size_t limit) : text_(text), limit_(limit) {}
  void replace(size_t begin, size_t end, std::string_view with) {
    out_.append(text_.substr(done_, begin - done_));
    done_ = end;
    check_growth(out_.size() + with.size(), limit_);
    out_.append(with);
  }
  std::string finish() { return std::move(out_.append(text_.substr(done_))); }

 private:
  std::string_view text_;
  size_t limit_;
  std::string out_;
  size_t done_ = 0;
};

std::string replace_literal(std::string_view text, std::string_view from, std::string_view to, size_t limit) {
  Replaced out(text, limit);
  size_t end = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, end)) {
    end = at + from.size();
    out.replace(at, end, to);
  }
  return out.finish();
}

std::string replace_pattern(std::string_view text, const NormalizerStep& step, size_t limit, Regex::Effort& effort) {
  Replaced out(text, limit);
  Regex::Search search(*step.pattern, text, effort);
  while (const auto match = search.next()) out.replace(match->begin, match->end, step.text);
  return out.finish();
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

// Unicode Standard Annex 15.
std::string compose(std::string_view text) {
  utf8proc_uint8_t* composed = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &composed, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, &std::free);
  if (length == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (length < 0) {
    throw Error(
        ErrorCode::invalid_argument,
        {.where = "text", .expected = "text that can be composed", .got = utf8proc_errmsg(length), .advice = {}});
  }
  return {reinterpret_cast<const char*>(composed), static_cast<size_t>(length)};
}

}  // namespace

std::string Normalizer::apply(std::string_view text, bool at_front, Regex::Effort& effort) const {
  std::string out(text);
  const size_t limit = kMostGrowth * text.size() + kAlwaysAllowed;
  for (const NormalizerStep& step : steps_) {
    switch (step.kind) {
      case NormalizerStep::Kind::replace:
        out = step.pattern ? replace_pattern(out, step, limit, effort)
                           : replace_literal(out, step.from, step.text, limit);
        break;
      case NormalizerStep::Kind::prepend:
        if (!at_front || out.empty()) break;
        check_growth(out.size() + step.text.size(), limit);
        out.insert(0, step.text);
        break;
      case NormalizerStep::Kind::strip:
        out = strip(out, step.strip_left, step.strip_right);
        break;
      case NormalizerStep::Kind::compose:
        out = compose(out);
        break;
    }
  }
  return out;
}

}  // namespace slipring
