// Byte-pair encoding of one piece of text: which symbols it starts from and which pairs join first.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <slipring/tokenizer.h>

#include "text/string_index.h"

namespace slipring {

/// The joins of a vocabulary with a merge list: (left id, right id) -> the joined id and the join's place in the list.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = 0;
    TokenId result = -1;
  };
  explicit MergeTable(size_t count);
  /// The first of equal pairs counts.
  void insert(TokenId left, TokenId right, Merge merge);
  const Merge* find(TokenId left, TokenId right) const noexcept;

 private:
  struct Slot {
    uint64_t pair = 0;
    Merge merge;
  };
  size_t slot_of(uint64_t pair) const noexcept;
  std::vector<Slot> slots_;
};

/// What a vocabulary says about joining. Exactly one of `merges` and `scores` is used.
struct BpeRules {
  const StringIndex* index = nullptr;   ///< the pieces that text may become
  std::optional<MergeTable> merges;     ///< joins by list: the lowest rank goes first
  std::vector<uint32_t> order;          ///< joins by score: order[id], the lowest first; empty with merges
  size_t longest_piece = 0;             ///< bytes
  bool byte_level = false;              ///< symbols are bytes in GPT-2 spelling, else characters
  std::array<TokenId, 256> byte_ids{};  ///< token of each byte, -1 for none
  bool byte_fallback = false;           ///< characters without a token become their bytes' tokens
  std::optional<TokenId> unknown;       ///< what else has no token becomes; nullopt: an error
  bool fuse_unknown = false;            ///< neighbouring unknowns become one
  bool whole_piece_first = false;       ///< a piece that is a token is that token, whatever the merges say
};

/// The merge loop, with its scratch memory. One for each encode() call.
///
/// A heap of candidate joins over a doubly linked list of symbols: O(n log n) for a piece of n bytes.
/// The best join goes first (lowest rank, or highest score); the leftmost of equals.
/// Source: Sennrich et al. 2016 (arXiv 1508.07909) for the merges, SentencePiece's bpe_model.cc for joins by score.
class BpeEncoder {
 public:
  explicit BpeEncoder(const BpeRules& rules) : rules_(rules) {}
  /// Appends the ids of `piece`, which is valid UTF-8 unless the rules are byte level.
  /// @throws Error{invalid_argument} where a character has no token
  void encode(std::string_view piece, std::vector<TokenId>& ids);
  /// Appends the token of one byte that belongs to no character.
  void encode_byte(uint8_t byte, std::vector<TokenId>& ids) const;

 private:
  struct Symbol {
    uint32_t begin, length;  // bytes of the piece; length 0: joined into its left neighbour
    int32_t left, right;     // neighbours, -1 at the ends
    TokenId id;              // -1: no token of that spelling
  };
  struct Join {
    uint64_t priority;  // rank << 32 | left symbol
    uint32_t length;    // of both sides together: tells whether either has changed since
    TokenId result;
  };
  std::optional<TokenId> whole(std::string_view piece) const;
  void split(std::string_view piece);
  void consider(std::string_view piece, int32_t left);
  void join_all(std::string_view piece);
  void emit(std::string_view piece, std::vector<TokenId>& ids);

  const BpeRules& rules_;
  std::vector<Symbol> symbols_;
  std::vector<Join> joins_;
};

}  // namespace slipring
