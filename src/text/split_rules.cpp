#include "text/split_rules.h"

#include <algorithm>
#include <string>

namespace slipring {
namespace {

// The patterns are those of the models' own tokenizer.json files.

constexpr std::string_view llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view o200k_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view tekken_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What a GGUF file without a more precise name means: punctuation and digits are set apart around GPT-2's rule.
const std::vector<std::string_view> default_patterns{R"([\p{P}\$\+<=>\^~\|]+)", gpt2_pattern, R"(\p{N}+)",
                                                     R"([0-9][0-9][0-9])"};

struct Entry {
  std::vector<std::string_view> names;
  SplitRules rules;
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> list{
      {{"default"}, {default_patterns, false, false}},
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling"}, {{gpt2_pattern}, false, false}},
      {{"smollm", "command-r", "starcoder", "refact", "codeshell", "exaone", "minerva-7b"},
       {{R"(\p{N})", gpt2_pattern}, false, false}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"}, {{llama3_pattern}, true, true}},
      {{"dbrx", "smaug-bpe", "chatglm-bpe"}, {{llama3_pattern}, false, false}},
      {{"qwen2", "stablelm2", "deepseek-r1-qwen", "hunyuan", "megrez"}, {{qwen2_pattern}, false, false}},
      {{"gpt-4o", "llama4"}, {{o200k_pattern}, false, false}},
      {{"tekken"}, {{tekken_pattern}, true, true}},
  };
  return list;
}

}  // namespace

std::optional<SplitRules> split_rules(std::string_view name) {
  for (const Entry& entry : entries()) {
    if (std::find(entry.names.begin(), entry.names.end(), name) != entry.names.end()) return entry.rules;
  }
  return std::nullopt;
}

}  // namespace slipring
