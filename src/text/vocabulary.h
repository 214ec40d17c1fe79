// What a tokenizer's files say, in one form for GGUF and tokenizer.json; the loaders fill it, BpeTokenizer runs it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <slipring/tokenizer.h>

#include "text/added_tokens.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace slipring {

/// The kinds of GGUF's token_type, with its numbers.
enum class TokenKind : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// How token strings spell bytes.
enum class Spelling : uint8_t {
  byte_level,    ///< GPT-2's characters for bytes
  sentencepiece  ///< plain text with "▁" for spaces, and byte tokens "<0x41>"
};

struct MergeRule {
  std::string left;
  std::string right;
};

struct Vocabulary {
  std::string where;  ///< the file, for errors
  Spelling spelling = Spelling::byte_level;
  std::vector<std::string> tokens;
  std::vector<TokenKind> kinds;  ///< as many as tokens

  std::vector<bool> outside_model;  ///< tokens that only AddedTokens finds; empty: none

  std::vector<MergeRule> merges;       ///< first to last; empty where `scores` rule
  bool merges_may_be_unknown = false;  ///< a merge that names no token is passed over instead of refused
  std::vector<float> scores;           ///< as many as tokens, or empty
  bool byte_fallback = false;
  std::optional<TokenId> unknown;  ///< what encoding falls back to
  bool fuse_unknown = false;
  bool whole_piece_first = false;

  AddedTokens added;             ///< looked for in the text as it is
  AddedTokens added_normalized;  ///< looked for in normalised text
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;

  bool drops_leading_space = false;
  /// What the rules put in front of a stretch of text, they also put behind a user-defined token.
  bool prefix_behind_user_defined = true;
  /// The strings of user-defined tokens are their bytes; else they are spelt like any other token's.
  bool user_defined_is_literal = true;
  std::optional<TokenId> bos;
  bool add_bos = false;
  std::vector<TokenId> end_of_turn;
  std::optional<std::string> chat_template;
};

class ModelFiles;

/// From tokenizer.ggml.* keys. @throws Error{bad_file, unsupported, not_found} naming the key
Vocabulary read_gguf_vocabulary(const ModelFiles& files);
/// From tokenizer.json, tokenizer_config.json, generation_config.json and chat_template.jinja of a folder.
/// @throws Error{bad_file, unsupported, not_found} naming the file and field
Vocabulary read_hf_vocabulary(const ModelFiles& files);

/// A chat template of a file, which may have up to kMaxTemplateBytes. @param where  the file and field, for the error
/// @throws Error{bad_file} for a longer one
std::string checked_template(std::string_view text, const std::string& where);
inline constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

/// Adds a token to `tokens`, which are the vocabulary's. @param field  for the error
/// @throws Error{unsupported} for one longer than AddedTokens::kLongest
void insert_added(const Vocabulary& vocabulary, const std::string& field, AddedToken token, AddedTokens& tokens);

/// Adds the control tokens of well-known turn ends ("<|eot_id|>", "<end_of_turn>" ...) to end_of_turn: for files that
/// name no turn end of their own besides the text's.
void add_turn_ends_by_name(Vocabulary& vocabulary);

/// The one byte that a token like "<0x0A>" stands for.
std::optional<uint8_t> parse_byte_token(std::string_view token);

/// SentencePiece's stand-in for the space, U+2581.
inline constexpr std::string_view space_mark = "\xE2\x96\x81";

}  // namespace slipring
