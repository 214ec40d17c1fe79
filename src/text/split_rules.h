// The split rules that GGUF files name in tokenizer.ggml.pre.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace slipring {

struct SplitRules {
  std::vector<std::string_view> patterns;  ///< run one after the other; each match becomes a piece of its own
  bool whole_piece_first = false;          ///< a piece that is a token needs no merges
  bool add_bos = false;                    ///< where the file does not say
};

/// nullopt for a name that is not known.
std::optional<SplitRules> split_rules(std::string_view name);

/// GPT-2's split rule, which is also that of tokenizer.json's ByteLevel with use_regex.
/// Source: GPT-2, encoder.py.
inline constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace slipring
