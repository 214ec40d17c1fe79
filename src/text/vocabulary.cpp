#include "text/vocabulary.h"

#include <algorithm>
#include <array>

#include <slipring/error.h>

namespace slipring {

std::string checked_template(std::string_view text, const std::string& where) {
  if (text.size() <= kMaxTemplateBytes) return std::string(text);
  throw Error(ErrorCode::bad_file, {where, "at most " + std::to_string(kMaxTemplateBytes) + " bytes",
                                    std::to_string(text.size()) + " bytes", ""});
}

void insert_added(const Vocabulary& vocabulary, const std::string& field, AddedToken token, AddedTokens& tokens) {
  if (token.content.size() > AddedTokens::kLongest) {
    throw Error(
        ErrorCode::unsupported,
        {vocabulary.where + ": " + field, "added tokens of at most " + std::to_string(AddedTokens::kLongest) + " bytes",
         "token " + std::to_string(token.id) + " with " + std::to_string(token.content.size()), ""});
  }
  tokens.insert(std::move(token));
}

void add_turn_ends_by_name(Vocabulary& vocabulary) {
  // "<|end|>" ends a turn in Phi's files, but only a message in those that have "<|return|>".
  constexpr std::array<std::string_view, 9> names{
      "<|eot_id|>", "<|eot|>", "<|eom_id|>", "<|eom|>", "<|im_end|>", "<end_of_turn>", "<|END_OF_TURN_TOKEN|>",
      "<|return|>", "<|call|>"};
  bool has_return = false;
  std::optional<TokenId> message_end;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.kinds[id] != TokenKind::control) continue;
    const std::string& token = vocabulary.tokens[id];
    if (token == "<|return|>") has_return = true;
    if (token == "<|end|>") message_end = static_cast<TokenId>(id);
    if (std::find(names.begin(), names.end(), token) != names.end()) {
      vocabulary.end_of_turn.push_back(static_cast<TokenId>(id));
    }
  }
  if (message_end && !has_return) vocabulary.end_of_turn.push_back(*message_end);
}

std::optional<uint8_t> parse_byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : token.substr(3, 2)) {
    unsigned digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<unsigned>(c - '0');
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<unsigned>(c - 'A') + 10;
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<unsigned>(c - 'a') + 10;
    } else {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return static_cast<uint8_t>(value);
}

}  // namespace slipring
