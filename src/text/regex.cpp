#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <array>
#include <pcre2.h>

#include <slipring/error.h>

namespace slipring {
namespace {

// Far above what one pass over a long text needs, far below what a pattern that backtracks without end would take.
constexpr uint32_t match_limit = 200'000'000;
constexpr size_t largest_jit_stack = 64U << 20;

// White_Space, and what Oniguruma takes for \w, spelt for the inside of a character class. PCRE2's own \s also holds
// U+180E, and its own \w lacks marks.
constexpr std::string_view space_class = R"(\p{Z}\t-\r\x{85})";
constexpr std::string_view word_class = R"(\p{L}\p{M}\p{N}\p{Pc})";

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
    pcre2_set_match_limit(context, match_limit);
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
  const std::string translated = with_unicode_classes(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr) {
    throw Error(ErrorCode::unsupported, {where_, "a regular expression that PCRE2 can run",
                                         pcre2_message(error) + " at byte " + std::to_string(offset), ""});
  }
  code_ = std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
  uint32_t may_match_nothing = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &may_match_nothing);
  if (may_match_nothing != 0) {
    throw Error(ErrorCode::unsupported, {where_, "a pattern that takes at least one character", translated, ""});
  }
  // Without a JIT (some machines have none) the same matches come from the interpreter, only slower.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
}

std::optional<Regex::Match> Regex::Search::next() {
  const auto* code = static_cast<const pcre2_code*>(regex_->code_.get());
  MatchState& state = match_state();
  if (at_ >= text_.size()) return std::nullopt;
  const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), at_,
                                PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, state.data, state.context);
  if (found == PCRE2_ERROR_NOMATCH) {
    at_ = text_.size();
    return std::nullopt;
  }
  if (found < 0) {
    throw Error(ErrorCode::invalid_argument,
                {regex_->where_, "a text that the split rule can be run on", pcre2_message(found), ""});
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.data);
  // \K in a lookaround can put the start behind the end or before the last match.
  if (bounds[1] <= bounds[0] || bounds[0] < at_ || bounds[1] > text_.size()) {
    throw Error(ErrorCode::unsupported,
                {regex_->where_, "a pattern without \\K", "a match that ends before it begins", ""});
  }
  at_ = bounds[1];
  return Match{bounds[0], bounds[1]};
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
