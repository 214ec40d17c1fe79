#include <utility>

#include <slipring/tokenizer.h>

#include "text/utf8.h"

namespace slipring {
namespace {

// Moves what is certain from `bytes` to `text`; an unfinished character stays, unless this is the end.
void take_certain(std::string& bytes, bool at_end, std::string& text) {
  size_t at = 0;
  while (at < bytes.size()) {
    const std::string_view rest = std::string_view(bytes).substr(at);
    const utf8::Step step = utf8::next(rest);
    if (step.kind == utf8::Step::Kind::cut && !at_end) break;
    text += step.kind == utf8::Step::Kind::character ? rest.substr(0, step.length) : utf8::replacement;
    at += step.length;
  }
  bytes.erase(0, at);
}

}  // namespace

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool continues_text)
    : tokenizer_(std::move(tokenizer)), first_(!continues_text && tokenizer_->drops_leading_space()) {}

std::string Detokenizer::add(TokenId id) {
  const std::string token = tokenizer_->token_bytes(id);
  const bool control = tokenizer_->is_control(id);
  const bool drop = first_ && !control && tokenizer_->leading_space_is_added(id) && token.starts_with(' ');
  pending_.append(token, drop ? 1 : 0);
  if (!control) first_ = false;
  std::string text;
  take_certain(pending_, false, text);
  return text;
}

std::string Detokenizer::finish() {
  std::string text;
  take_certain(pending_, true, text);
  return text;
}

std::string valid_utf8(std::string_view bytes) {
  std::string rest(bytes);
  std::string text;
  take_certain(rest, true, text);
  return text;
}

}  // namespace slipring
