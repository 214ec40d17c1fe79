#include "text/bpe.h"

#include <algorithm>
#include <limits>

#include <slipring/error.h>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace slipring {
namespace {

constexpr uint64_t no_pair = std::numeric_limits<uint64_t>::max();

uint64_t pair_of(TokenId left, TokenId right) noexcept {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// The best join comes off a std::pop_heap first.
constexpr auto later = [](const auto& a, const auto& b) { return a.priority > b.priority; };

[[noreturn]] void no_token(std::string_view what) {
  std::string hex;
  for (const char c : what) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    const auto byte = static_cast<uint8_t>(c);
    hex += hex.empty() ? "" : " ";
    hex += digits[byte >> 4];
    hex += digits[byte & 15];
  }
  throw Error(ErrorCode::invalid_argument,
              {"text", "characters that the vocabulary can spell", "bytes " + hex + ", for which it has no token", ""});
}

}  // namespace

MergeTable::MergeTable(size_t count) {
  size_t slots = 16;
  while (slots < count * 2) slots *= 2;
  slots_.assign(slots, Slot{no_pair, {}});
}

size_t MergeTable::slot_of(uint64_t pair) const noexcept {
  const size_t mask = slots_.size() - 1;
  // Fibonacci hashing: the ids' low bits alone would cluster.
  size_t slot = static_cast<size_t>((pair * 0x9E3779B97F4A7C15ULL) >> 20) & mask;
  while (slots_[slot].pair != no_pair && slots_[slot].pair != pair) slot = (slot + 1) & mask;
  return slot;
}

void MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  Slot& slot = slots_[slot_of(pair_of(left, right))];
  if (slot.pair == no_pair) slot = {pair_of(left, right), merge};
}

const MergeTable::Merge* MergeTable::find(TokenId left, TokenId right) const noexcept {
  const Slot& slot = slots_[slot_of(pair_of(left, right))];
  return slot.pair == no_pair ? nullptr : &slot.merge;
}

void BpeEncoder::encode(std::string_view piece, std::vector<TokenId>& ids) {
  if (piece.empty()) return;
  if (piece.size() >= std::numeric_limits<int32_t>::max()) {
    throw Error(ErrorCode::invalid_argument,
                {"text", "less than 2 GiB in one piece", std::to_string(piece.size()) + " bytes", ""});
  }
  if (rules_.whole_piece_first) {
    if (const auto id = whole(piece)) {
      ids.push_back(*id);
      return;
    }
  }
  split(piece);
  join_all(piece);
  emit(piece, ids);
}

std::optional<TokenId> BpeEncoder::whole(std::string_view piece) const {
  if (piece.size() > rules_.longest_piece) return std::nullopt;
  if (!rules_.byte_level) return rules_.index->find(piece);
  std::string spelt;
  for (const char c : piece) spelt += byte_level::spelling(static_cast<uint8_t>(c));
  return rules_.index->find(spelt);
}

void BpeEncoder::split(std::string_view piece) {
  symbols_.clear();
  for (size_t at = 0; at < piece.size();) {
    size_t length = 1;
    TokenId id = -1;
    if (rules_.byte_level) {
      id = rules_.byte_ids[static_cast<uint8_t>(piece[at])];
    } else {
      length = utf8::next(piece.substr(at)).length;
      id = rules_.index->find(piece.substr(at, length)).value_or(-1);
    }
    const auto here = static_cast<int32_t>(symbols_.size());
    symbols_.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(length), here - 1, here + 1, id});
    at += length;
  }
  symbols_.back().right = -1;
}

// Puts the join of `left` and its right neighbour on the heap, if the rules have one.
void BpeEncoder::consider(std::string_view piece, int32_t left) {
  if (left < 0) return;
  const Symbol& a = symbols_[static_cast<size_t>(left)];
  if (a.right < 0) return;
  const Symbol& b = symbols_[static_cast<size_t>(a.right)];
  const uint32_t length = a.length + b.length;
  Join join{0, length, -1};
  uint32_t rank = 0;
  if (rules_.merges) {
    const MergeTable::Merge* merge = rules_.merges->find(a.id, b.id);
    if (merge == nullptr) return;
    rank = merge->rank;
    join.result = merge->result;
  } else {
    if (length > rules_.longest_piece) return;
    const auto id = rules_.index->find(piece.substr(a.begin, length));
    if (!id) return;
    rank = rules_.order[static_cast<size_t>(*id)];
    join.result = *id;
  }
  join.priority = static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(left);
  joins_.push_back(join);
  std::push_heap(joins_.begin(), joins_.end(), later);
}

void BpeEncoder::join_all(std::string_view piece) {
  joins_.clear();
  for (size_t i = 0; i + 1 < symbols_.size(); ++i) consider(piece, static_cast<int32_t>(i));
  while (!joins_.empty()) {
    std::pop_heap(joins_.begin(), joins_.end(), later);
    const Join join = joins_.back();
    joins_.pop_back();
    Symbol& left = symbols_[join.priority & 0xFFFFFFFFU];
    if (left.length == 0 || left.right < 0) continue;
    Symbol& right = symbols_[static_cast<size_t>(left.right)];
    // Symbols only grow and only to the right, so an unchanged length means unchanged sides.
    if (left.length + right.length != join.length) continue;
    left.length = join.length;
    left.id = join.result;
    right.length = 0;
    left.right = right.right;
    const auto here = static_cast<int32_t>(&left - symbols_.data());
    if (left.right >= 0) symbols_[static_cast<size_t>(left.right)].left = here;
    consider(piece, left.left);
    consider(piece, here);
  }
}

void BpeEncoder::emit(std::string_view piece, std::vector<TokenId>& ids) {
  bool after_unknown = false;
  for (int32_t i = 0; i >= 0; i = symbols_[static_cast<size_t>(i)].right) {
    const Symbol& symbol = symbols_[static_cast<size_t>(i)];
    if (symbol.id >= 0) {
      ids.push_back(symbol.id);
      after_unknown = false;
      continue;
    }
    const std::string_view text = piece.substr(symbol.begin, symbol.length);
    const auto has_token = [this](char c) { return rules_.byte_ids[static_cast<uint8_t>(c)] >= 0; };
    if (rules_.byte_fallback && std::all_of(text.begin(), text.end(), has_token)) {
      for (const char c : text) ids.push_back(rules_.byte_ids[static_cast<uint8_t>(c)]);
      after_unknown = false;
    } else if (rules_.unknown) {
      if (!(rules_.fuse_unknown && after_unknown)) ids.push_back(*rules_.unknown);
      after_unknown = true;
    } else {
      no_token(text);
    }
  }
}

void BpeEncoder::encode_byte(uint8_t byte, std::vector<TokenId>& ids) const {
  const char c = static_cast<char>(byte);
  if (rules_.byte_ids[byte] >= 0) {
    ids.push_back(rules_.byte_ids[byte]);
  } else if (rules_.unknown) {
    ids.push_back(*rules_.unknown);
  } else {
    no_token({&c, 1});
  }
}

}  // namespace slipring
