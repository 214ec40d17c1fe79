// Finds the tokens that are matched as they are, before any other rule: control tokens and user-defined ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <slipring/tokenizer.h>

namespace slipring {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool control = false;      ///< matched only where control tokens are parsed
  bool strip_left = false;   ///< takes the white space in front of it along
  bool strip_right = false;  ///< takes the white space behind it along
  bool single_word = false;  ///< only where no word character touches it
};

/// A trie over the added tokens' bytes. At each place the longest one wins, from left to right.
/// Time: text bytes x longest added token at worst; in practice a look at each byte.
class AddedTokens {
 public:
  /// In bytes: the time above. Those of known models have up to 93.
  static constexpr size_t kLongest = 256;

  AddedTokens() : first_(256, -1) {}
  /// Of equal contents the first inserted counts.
  void insert(AddedToken token);
  bool empty() const noexcept { return tokens_.empty(); }

  /// A stretch of text, or a token that stands for it.
  struct Part {
    std::string_view text;
    TokenId id = -1;  ///< -1: plain text
  };
  /// @returns parts that cover `text` in order, less the white space that tokens strip; none is empty text
  std::vector<Part> split(std::string_view text, ControlTokens control) const;

 private:
  struct Node {
    int32_t control = -1;  // index into tokens_ that ends here
    int32_t plain = -1;
  };
  const AddedToken* longest_at(std::string_view text, size_t at, ControlTokens control) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::vector<int32_t> first_;                      // node of each first byte
  std::unordered_map<uint64_t, int32_t> children_;  // node << 8 | byte -> node
};

}  // namespace slipring
