// The tokenizer behind the public interface: byte-pair encoding over a Vocabulary.
#pragma once

#include <slipring/tokenizer.h>

#include "text/bpe.h"
#include "text/vocabulary.h"

namespace slipring {

class BpeTokenizer final : public Tokenizer {
 public:
  /// @throws Error{bad_file} where the vocabulary contradicts itself
  explicit BpeTokenizer(Vocabulary vocabulary);
  // The indexes point into the vocabulary.
  BpeTokenizer(const BpeTokenizer&) = delete;
  BpeTokenizer& operator=(const BpeTokenizer&) = delete;

  std::vector<TokenId> encode(std::string_view text, ControlTokens control) const override;
  std::string token_bytes(TokenId id, bool show_control) const override;
  const std::string& token_text(TokenId id) const override;
  bool is_control(TokenId id) const override;
  std::optional<TokenId> find(std::string_view token) const override { return index_.find(token); }
  bool drops_leading_space() const noexcept override { return vocabulary_.drops_leading_space; }
  bool leading_space_is_added(TokenId id) const override;
  int64_t size() const noexcept override { return static_cast<int64_t>(vocabulary_.tokens.size()); }
  std::optional<TokenId> bos() const noexcept override { return vocabulary_.bos; }
  bool add_bos() const noexcept override { return vocabulary_.add_bos; }
  const std::vector<TokenId>& end_of_turn() const noexcept override { return vocabulary_.end_of_turn; }
  const std::optional<std::string>& chat_template() const noexcept override { return vocabulary_.chat_template; }

 private:
  struct Encoding;  // one call of encode(): what it works with, and its ids so far
  void check_ids() const;
  void drop_repeated_turn_ends();
  void index_tokens();
  void build_rules();
  size_t checked(TokenId id) const;
  void encode_stretch(std::string_view text, bool at_front, bool at_start, Encoding& run) const;
  void encode_valid(std::string_view text, bool at_front, bool at_start, Encoding& run) const;

  Vocabulary vocabulary_;
  StringIndex index_;        // every token
  StringIndex piece_index_;  // those that text may become by joining
  BpeRules rules_;
};

}  // namespace slipring
