#include "text/bpe_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <slipring/error.h>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace slipring {
namespace {

[[noreturn]] void bad_vocabulary(const Vocabulary& vocabulary, std::string field, std::string expected,
                                 std::string got) {
  throw Error(ErrorCode::bad_file,
              {vocabulary.where + ": " + std::move(field), std::move(expected), std::move(got), ""});
}

// Places in order of falling score; equal scores share a place, so that the leftmost join wins among them.
std::vector<uint32_t> places(const std::vector<float>& scores) {
  std::vector<uint32_t> ids(scores.size());
  std::iota(ids.begin(), ids.end(), 0U);
  std::sort(ids.begin(), ids.end(), [&scores](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
  std::vector<uint32_t> order(scores.size());
  uint32_t place = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0 && scores[ids[i]] != scores[ids[i - 1]]) ++place;
    order[ids[i]] = place;
  }
  return order;
}

}  // namespace

BpeTokenizer::BpeTokenizer(Vocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)), index_(vocabulary_.tokens), piece_index_(vocabulary_.tokens) {
  check_ids();
  drop_repeated_turn_ends();
  index_tokens();
  build_rules();
}

void BpeTokenizer::check_ids() const {
  const auto count = vocabulary_.tokens.size();
  if (count == 0 || count > std::numeric_limits<TokenId>::max()) {
    bad_vocabulary(vocabulary_, "tokens", "1 to 2^31 - 1 tokens", std::to_string(count));
  }
  if (vocabulary_.kinds.size() != count) {
    bad_vocabulary(vocabulary_, "token kinds", std::to_string(count) + ", one a token",
                   std::to_string(vocabulary_.kinds.size()));
  }
  const auto check = [&](TokenId id, const char* field) {
    if (id < 0 || static_cast<size_t>(id) >= count) {
      bad_vocabulary(vocabulary_, field, "an id below " + std::to_string(count), std::to_string(id));
    }
  };
  if (vocabulary_.bos) check(*vocabulary_.bos, "bos token");
  if (vocabulary_.unknown) check(*vocabulary_.unknown, "unknown token");
  for (const TokenId id : vocabulary_.end_of_turn) check(id, "end-of-turn token");
}

void BpeTokenizer::drop_repeated_turn_ends() {
  std::vector<TokenId> once;
  for (const TokenId id : vocabulary_.end_of_turn) {
    if (std::find(once.begin(), once.end(), id) == once.end()) once.push_back(id);
  }
  vocabulary_.end_of_turn = std::move(once);
}

void BpeTokenizer::index_tokens() {
  for (size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
    const TokenKind kind = vocabulary_.kinds[id];
    // Unused ids of a padded vocabulary have no string.
    if (vocabulary_.tokens[id].empty()) continue;
    index_.insert(static_cast<TokenId>(id));
    if (kind == TokenKind::control || kind == TokenKind::unknown || kind == TokenKind::byte) continue;
    if (id < vocabulary_.outside_model.size() && vocabulary_.outside_model[id]) continue;
    piece_index_.insert(static_cast<TokenId>(id));
    rules_.longest_piece = std::max(rules_.longest_piece, vocabulary_.tokens[id].size());
  }
}

void BpeTokenizer::build_rules() {
  rules_.index = &piece_index_;
  rules_.byte_level = vocabulary_.spelling == Spelling::byte_level;
  rules_.byte_fallback = vocabulary_.byte_fallback;
  rules_.unknown = vocabulary_.unknown;
  rules_.fuse_unknown = vocabulary_.fuse_unknown;
  rules_.whole_piece_first = vocabulary_.whole_piece_first;

  rules_.byte_ids.fill(-1);
  if (rules_.byte_level) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      rules_.byte_ids[byte] = piece_index_.find(byte_level::spelling(static_cast<uint8_t>(byte))).value_or(-1);
    }
  } else {
    for (size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
      if (vocabulary_.kinds[id] != TokenKind::byte) continue;
      const auto byte = parse_byte_token(vocabulary_.tokens[id]);
      if (!byte) {
        bad_vocabulary(vocabulary_, "byte token " + std::to_string(id), "<0x00> to <0xFF>", vocabulary_.tokens[id]);
      }
      if (rules_.byte_ids[*byte] < 0) rules_.byte_ids[*byte] = static_cast<TokenId>(id);
    }
  }

  if (!vocabulary_.scores.empty()) {
    if (vocabulary_.scores.size() != vocabulary_.tokens.size()) {
      bad_vocabulary(vocabulary_, "scores", std::to_string(vocabulary_.tokens.size()) + ", one a token",
                     std::to_string(vocabulary_.scores.size()));
    }
    for (const float score : vocabulary_.scores) {
      if (std::isnan(score)) bad_vocabulary(vocabulary_, "scores", "numbers", "NaN");
    }
    rules_.order = places(vocabulary_.scores);
    vocabulary_.scores = {};
    return;
  }
  rules_.merges.emplace(vocabulary_.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < vocabulary_.merges.size(); ++rank) {
    const auto& [left, right] = vocabulary_.merges[rank];
    const auto a = piece_index_.find(left);
    const auto b = piece_index_.find(right);
    joined.assign(left).append(right);
    const auto both = piece_index_.find(joined);
    if (a && b && both) {
      rules_.merges->insert(*a, *b, {static_cast<uint32_t>(rank), *both});
    } else if (!vocabulary_.merges_may_be_unknown) {
      bad_vocabulary(vocabulary_, "merge " + std::to_string(rank), "two tokens whose joined text is a token",
                     "\"" + left + "\" and \"" + right + "\"");
    }
  }
  vocabulary_.merges = {};
}

struct BpeTokenizer::Encoding {
  ControlTokens control;
  BpeEncoder encoder;
  Regex::Effort effort = Regex::Effort();
  std::vector<TokenId> ids{};
};

std::vector<TokenId> BpeTokenizer::encode(std::string_view text, ControlTokens control) const {
  Encoding run{control, BpeEncoder(rules_)};
  bool at_front = true;
  for (const AddedTokens::Part& part : vocabulary_.added.split(text, control)) {
    if (part.id >= 0) {
      run.ids.push_back(part.id);
      at_front = vocabulary_.prefix_behind_user_defined || is_control(part.id);
    } else {
      encode_stretch(part.text, at_front, part.text.data() == text.data(), run);
    }
  }
  return std::move(run.ids);
}

// Rules see whole characters only; bytes that belong to none go straight to their tokens.
void BpeTokenizer::encode_stretch(std::string_view text, bool at_front, bool at_start, Encoding& run) const {
  while (!text.empty()) {
    const size_t valid = utf8::valid_prefix(text);
    if (valid > 0) encode_valid(text.substr(0, valid), at_front, at_start, run);
    text.remove_prefix(valid);
    if (text.empty()) break;
    run.encoder.encode_byte(static_cast<uint8_t>(text.front()), run.ids);
    text.remove_prefix(1);
    at_front = false;
  }
}

void BpeTokenizer::encode_valid(std::string_view text, bool at_front, bool at_start, Encoding& run) const {
  std::string normalized;
  if (!vocabulary_.normalizer.empty()) {
    normalized = vocabulary_.normalizer.apply(text, at_front, run.effort);
    text = normalized;
  }
  for (const AddedTokens::Part& part : vocabulary_.added_normalized.split(text, run.control)) {
    if (part.id >= 0) {
      run.ids.push_back(part.id);
      continue;
    }
    std::deque<std::string> rewritten;
    const bool starts = at_start && part.text.data() == text.data();
    for (const std::string_view piece :
         vocabulary_.pre_tokenizer.split(part.text, at_front, starts, rewritten, run.effort)) {
      run.encoder.encode(piece, run.ids);
    }
  }
}

size_t BpeTokenizer::checked(TokenId id) const {
  if (id < 0 || id >= size()) {
    throw Error(ErrorCode::invalid_argument,
                {"token id", "0 to " + std::to_string(size() - 1), std::to_string(id), ""});
  }
  return static_cast<size_t>(id);
}

const std::string& BpeTokenizer::token_text(TokenId id) const {
  return vocabulary_.tokens[checked(id)];
}

bool BpeTokenizer::is_control(TokenId id) const {
  const TokenKind kind = vocabulary_.kinds[checked(id)];
  return kind == TokenKind::control || kind == TokenKind::unknown;
}

bool BpeTokenizer::leading_space_is_added(TokenId id) const {
  const TokenKind kind = vocabulary_.kinds[checked(id)];
  return kind != TokenKind::user_defined || !vocabulary_.user_defined_is_literal;
}

std::string BpeTokenizer::token_bytes(TokenId id, bool show_control) const {
  const std::string& text = token_text(id);
  const TokenKind kind = vocabulary_.kinds[static_cast<size_t>(id)];
  if (is_control(id)) return show_control ? text : std::string();
  if (kind == TokenKind::user_defined && vocabulary_.user_defined_is_literal) return text;
  if (vocabulary_.spelling == Spelling::byte_level) return byte_level::bytes_of(text).value_or(text);
  if (kind == TokenKind::byte) return {static_cast<char>(parse_byte_token(text).value_or(0))};
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const size_t mark = text.find(space_mark, at);
    bytes.append(text, at, mark - at);
    if (mark == std::string::npos) break;
    bytes += ' ';
    at = mark + space_mark.size();
  }
  return bytes;
}

}  // namespace slipring
