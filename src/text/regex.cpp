#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <array>
#include <pcre2.h>

#include <slipring/error.h>

namespace slipring {
namespace {

constexpr size_t largest_jit_stack = 64U << 20;
// Of the interpreter, which machines without a JIT run.
constexpr uint32_t largest_heap_kib = 64U << 10;

// White_Space, and what Oniguruma takes for \w, spelt for the inside of a character class. PCRE2's own \s also holds
// U+180E, and its own \w lacks marks.
constexpr std::string_view space_class = R"(\p{Z}\t-\r\x{85})";
constexpr std::string_view word_class = R"(\p{L}\p{M}\p{N}\p{Pc})";

// (*NO_JIT), (*LIMIT_HEAP=...), (*SKIP) belong to PCRE2 alone and turn its limits off or its meaning round; \G would
// ask where the search began, and one search is many here.
bool is_foreign(std::string_view pattern) {
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      if (pattern[++i] == 'G' && !in_class) return true;
    } else if (pattern[i] == '[' && !in_class) {
      in_class = true;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') ++i;
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') ++i;
    } else if (pattern[i] == ']') {
      in_class = false;
    } else if (pattern[i] == '(' && !in_class && i + 1 < pattern.size() && pattern[i + 1] == '*') {
      return true;
    }
  }
  return false;
}

std::string with_unicode_classes(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's' || (escaped == 'S' && !in_class)) {
        out.append(in_class ? "" : (escaped == 's' ? "[" : "[^")).append(space_class).append(in_class ? "" : "]");
      } else if (escaped == 'w' || (escaped == 'W' && !in_class)) {
        out.append(in_class ? "" : (escaped == 'w' ? "[" : "[^")).append(word_class).append(in_class ? "" : "]");
      } else {
        out += c;
        out += escaped;
      }
      continue;
    }
    if (c == '[' && !in_class) {
      in_class = true;
      out += c;
      // A ']' that comes first is a member, not the end.
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') out += pattern[++i];
      continue;
    }
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// Everything that matching writes to. One for each thread, since making one costs far more than most matches.
struct MatchState {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;

  MatchState()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32U << 10, largest_jit_stack, nullptr)) {
    if (data == nullptr || context == nullptr || stack == nullptr) {
      free_all();
      throw Error(ErrorCode::out_of_memory, {"regular expression", "", "no memory for a match", ""});
    }
    pcre2_set_heap_limit(context, largest_heap_kib);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;
  ~MatchState() { free_all(); }

 private:
  void free_all() noexcept {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

MatchState& match_state() {
  thread_local MatchState state;
  return state;
}

}  // namespace

Regex::Regex(std::string_view pattern, std::string_view where) : where_(where) {
  if (is_foreign(pattern)) {
    throw Error(ErrorCode::unsupported,
                {where_, "a pattern without (*VERBS) and \\G", std::string(pattern.substr(0, 80)), ""});
  }
  const std::string translated = with_unicode_classes(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  const auto compiled = [&](uint32_t further) {
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | further, &error, &offset, nullptr);
    if (code == nullptr) {
      throw Error(ErrorCode::unsupported, {where_, "a regular expression that PCRE2 can run",
                                           pcre2_message(error) + " at byte " + std::to_string(offset), ""});
    }
    std::shared_ptr<void> owner(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
    // Without a JIT (some machines have none) the same matches come from the interpreter, only slower.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    return owner;
  };
  code_ = compiled(0);
  uint32_t may_match_nothing = 0;
  pcre2_pattern_info(static_cast<const pcre2_code*>(code_.get()), PCRE2_INFO_MATCHEMPTY, &may_match_nothing);
  if (may_match_nothing != 0) {
    throw Error(ErrorCode::unsupported, {where_, "a pattern that takes at least one character", translated, ""});
  }
  // The JIT takes no PCRE2_ANCHORED when it matches, and its offset limit can end inside a character (PCRE2 10.42).
  anchored_ = compiled(PCRE2_ANCHORED);
}

// A match that begins before `end`, or at at_ alone, in at most `steps` for each place where it may begin. Where it
// would have to look beyond `end`, that is PCRE2_ERROR_PARTIAL, so that PCRE2_ERROR_NOMATCH is true of the whole text.
int Regex::Search::match(size_t end, size_t steps, bool only_here) const {
  MatchState& state = match_state();
  const auto* code = static_cast<const pcre2_code*>((only_here ? regex_->anchored_ : regex_->code_).get());
  pcre2_set_match_limit(state.context, static_cast<uint32_t>(std::min<size_t>(steps, UINT32_MAX)));
  const uint32_t partial = end < text_.size() ? PCRE2_PARTIAL_HARD : 0;
  return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text_.data()), end, at_,
                     PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | partial, state.data, state.context);
}

// The end of the character that `at` is in or in front of, at most.
size_t Regex::Search::character_end(size_t at) const {
  while (at < text_.size() && (static_cast<unsigned char>(text_[at]) & 0xC0U) == 0x80U) ++at;
  return std::min(at, text_.size());
}

void Regex::Search::spend(size_t steps) {
  if (steps > effort_->left_) {
    throw Error(ErrorCode::invalid_argument,
                {regex_->where_, "a text that the split rule can be run on", "one that takes it too many steps", ""});
  }
  effort_->left_ -= steps;
}

std::optional<Regex::Match> Regex::Search::next() {
  size_t reach = effort_->first_reach_;
  size_t hard_until = 0;  // before it lies a place that needs more than the first reach
  while (at_ < text_.size()) {
    const bool only_here = at_ < hard_until;
    const size_t end = text_.size() - at_ <= reach ? text_.size() : character_end(at_ + reach);
    const int found = match(end, reach, only_here);
    if (found == PCRE2_ERROR_NOMATCH) {
      at_ = only_here ? character_end(at_ + 1) : end;
      reach = effort_->first_reach_;
    } else if (found == PCRE2_ERROR_PARTIAL || found == PCRE2_ERROR_MATCHLIMIT) {
      spend(reach);
      // First find the place, then give it more: one place alone cannot take more than it is charged.
      if (only_here) {
        reach *= 4;
      } else {
        hard_until = end;
      }
    } else if (found < 0) {
      throw Error(ErrorCode::invalid_argument,
                  {regex_->where_, "a text that the split rule can be run on", pcre2_message(found), ""});
    } else {
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match_state().data);
      // \K in a lookaround can put the start behind the end or before the last match.
      if (bounds[1] <= bounds[0] || bounds[0] < at_ || bounds[1] > text_.size()) {
        throw Error(ErrorCode::unsupported,
                    {regex_->where_, "a pattern without \\K", "a match that ends before it begins", ""});
      }
      at_ = bounds[1];
      return Match{bounds[0], bounds[1]};
    }
  }
  return std::nullopt;
}

std::string regex_quote(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    if (std::string_view(R"(\^$.|?*+()[]{}-# )").find(c) != std::string_view::npos) quoted += '\\';
    quoted += c;
  }
  return quoted;
}

}  // namespace slipring
