// The bodies that clients send. Parsing checks types and ranges and knows no model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <slipring/sampling.h>
#include <slipring/tokenizer.h>

namespace slipring::server {

/// Most of what a body may hold; all are checked before any work.
inline constexpr int kMaxBodyDepth = 64;
inline constexpr size_t kMaxStops = 16;
inline constexpr size_t kMaxStopBytes = 1024;
inline constexpr int64_t kMaxChoices = 16;
inline constexpr int64_t kMaxTopLogprobs = 20;
inline constexpr size_t kMaxLogitBias = 1024;

/// Fields that completions and chat share. Null counts as absent, unknown fields are ignored.
struct GenerationFields {
  std::string model;
  /// Tokens to generate, at most; absent: as the context allows. 0: none.
  std::optional<int64_t> max_tokens;
  int64_t n = 1;
  std::vector<std::string> stop;
  bool stream = false;
  bool include_usage = false;  ///< stream_options.include_usage
  /// Alternatives to report for each token; absent: no logprobs at all.
  std::optional<int64_t> logprobs;
  std::optional<uint64_t> seed;
  /// With OpenAI's defaults: temperature 1, top_p 1, no top_k. Ids of logit_bias are not yet checked.
  SamplingOptions sampling;
};

struct CompletionRequest : GenerationFields {
  /// One a completion: text, or token ids as they are.
  std::vector<std::variant<std::string, std::vector<TokenId>>> prompts;
};

struct ChatRequest : GenerationFields {
  std::string messages;   ///< JSON array: contents are strings, tool arguments objects
  std::string tools;      ///< JSON array, empty for none
  std::string variables;  ///< JSON object of further template variables, empty for none
};

struct TokenizeRequest {
  std::string content;
  bool add_special = false;    ///< BOS in front where the model wants one
  bool parse_special = false;  ///< spelled control tokens become control tokens
};

/// @throws ApiError 400 naming the field, for anything that is not as it should be
CompletionRequest parse_completion(std::string_view body);
ChatRequest parse_chat(std::string_view body);
TokenizeRequest parse_tokenize(std::string_view body);
std::vector<TokenId> parse_detokenize(std::string_view body);

}  // namespace slipring::server
