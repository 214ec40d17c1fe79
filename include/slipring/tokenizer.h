// Text to token ids and back, as the model's own files define it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slipring {

class ModelFiles;
using TokenId = int32_t;

/// Whether the strings of control tokens ("<|eot|>") in the text become those tokens.
enum class ControlTokens : uint8_t {
  as_text,  ///< they are text like any other: right for whatever a user wrote
  parse     ///< they become their ids: right for a chat template's scaffold
};

/// A vocabulary with its rules. Immutable; safe to share between threads.
class Tokenizer {
 public:
  /// From GGUF metadata (tokenizer.ggml.*) or tokenizer.json beside the weights.
  /// @throws Error{bad_file, unsupported} naming the field
  static std::shared_ptr<const Tokenizer> load(const ModelFiles& files);
  virtual ~Tokenizer() = default;

  /// Ids of `text`; never adds BOS or EOS. Invalid UTF-8 is encoded byte by byte where the vocabulary has byte tokens.
  /// User-defined tokens are found in either mode, as the reference tokenizers do. Of ids that share one string the
  /// lowest is used. decode() returns the text, except that a SentencePiece vocabulary cannot tell U+2581 from a space,
  /// and for what the file's normaliser changes.
  /// Time is near-linear in the text's length, whatever it holds.
  /// @throws Error{invalid_argument} where a byte has no token
  virtual std::vector<TokenId> encode(std::string_view text, ControlTokens control = ControlTokens::as_text) const = 0;

  /// The exact bytes that one token stands for; empty for control tokens unless `show_control`.
  /// @throws Error{invalid_argument} if id is not in [0, size())
  virtual std::string token_bytes(TokenId id, bool show_control = false) const = 0;
  /// The token's own spelling in the vocabulary file.
  virtual const std::string& token_text(TokenId id) const = 0;
  virtual bool is_control(TokenId id) const = 0;
  /// Id of that exact vocabulary entry.
  virtual std::optional<TokenId> find(std::string_view token) const = 0;

  /// Bytes of all ids, one after the other: the definition of decoding. May hold invalid UTF-8.
  /// SentencePiece vocabularies that add a space prefix drop one leading space of the first token that is no control
  /// token.
  std::string decode(std::span<const TokenId> ids, bool show_control = false) const;
  /// True where decode() drops the first token's leading space.
  virtual bool drops_leading_space() const noexcept = 0;
  /// Whether a space in front of this token can be one that encoding added (false for user-defined tokens, whose text
  /// is taken as it is).
  virtual bool leading_space_is_added(TokenId id) const;

  virtual int64_t size() const noexcept = 0;
  virtual std::optional<TokenId> bos() const noexcept = 0;
  /// Whether the model expects BOS in front of a prompt.
  virtual bool add_bos() const noexcept = 0;
  /// Every id that ends a turn or the text: eos, eot, eom and generation_config.json's list, without repeats.
  virtual const std::vector<TokenId>& end_of_turn() const noexcept = 0;
  /// The chat template of the model's files, if any.
  virtual const std::optional<std::string>& chat_template() const noexcept = 0;
};

/// `ids` with exactly one BOS in front, where the model expects one: put there if the first id is another, and repeats
/// of it at the front removed. Ids of a model that expects none come back as they are.
std::vector<TokenId> with_one_bos(const Tokenizer& tokenizer, std::vector<TokenId> ids);

/// Joins tokens to text without ever emitting half a character: bytes wait until their UTF-8 character is whole.
/// Invalid bytes become U+FFFD, one a maximal invalid subpart, exactly as if the whole text had been decoded at once.
class Detokenizer {
 public:
  /// @param continues_text the tokens follow a text that is shown already, so the first one's space is part of it
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool continues_text = false);
  /// Text that became certain with this token; may be empty.
  std::string add(TokenId id);
  /// The unfinished tail, once, at the end.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string pending_;
  bool first_;
};

/// Replaces invalid UTF-8 as Detokenizer does. The joined output of a Detokenizer equals this of decode().
std::string valid_utf8(std::string_view bytes);

}  // namespace slipring
