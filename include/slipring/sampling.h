// From logits to the next token.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <slipring/tokenizer.h>

namespace slipring {

/// Applied in this order: logit bias, repeat / presence / frequency penalties, then (temperature 0: the greatest logit
/// wins, the lowest id among equals) top-k, softmax at temperature 1, top-p, min-p, temperature, draw. Filters see the
/// model's own distribution, so temperature does not change what survives them; each keeps at least one token.
struct SamplingOptions {
  double temperature = 0.8;        ///< 0: greedy; else 1e-6 or more (smaller ones count as greedy)
  int64_t top_k = 40;              ///< keep the k most likely; 0 or less, or beyond the vocabulary: all
  double top_p = 0.95;             ///< keep the smallest set with this much probability, 0 to 1; 1: all
  double min_p = 0.0;              ///< keep tokens at least this share as likely as the likeliest, 0 to 1
  double repeat_penalty = 1.0;     ///< > 0; divides positive logits of recent tokens, multiplies negative ones; 1: none
  double presence_penalty = 0.0;   ///< -2 to 2; subtracted from the logit of every token seen
  double frequency_penalty = 0.0;  ///< -2 to 2; subtracted once for each time a token was seen
  int64_t penalty_window = 64;     ///< how many of the last tokens repeat_penalty looks at; 0: none, -1: all
  std::vector<std::pair<TokenId, float>> logit_bias;  ///< added to the logit; -infinity bans a token
  uint64_t seed = 0;                                  ///< same seed, same draws

  /// Every problem with these settings, one line each; empty if they are sound.
  std::vector<std::string> problems(int64_t vocab_size) const;
};

/// A token's probability in the model's own distribution, before any filter.
struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0.0F;
};

/// Draws are a function of the seed and the number of the draw alone, so speculation and restored snapshots see the
/// same stream. Threads: one at a time.
class Sampler {
 public:
  /// @throws Error{invalid_argument} with all problems in one line
  Sampler(SamplingOptions options, int64_t vocab_size);

  /// Token for draw number draws(), given all tokens so far (prompt and output, for the penalties). Does not advance.
  /// @param logits  [vocab_size]
  /// @throws Error{non_finite} if a logit is NaN or +infinity, or all are -infinity
  TokenId pick(std::span<const float> logits, std::span<const TokenId> history) const {
    return pick(logits, history, draws_);
  }
  /// The same for a later draw: a speculated position.
  TokenId pick(std::span<const float> logits, std::span<const TokenId> history, uint64_t draw) const;
  /// Counts `count` draws as made.
  void advance(uint64_t count = 1) noexcept { draws_ += count; }

  uint64_t draws() const noexcept { return draws_; }
  void set_draws(uint64_t draws) noexcept { draws_ = draws; }
  const SamplingOptions& options() const noexcept { return options_; }

 private:
  SamplingOptions options_;
  int64_t vocab_size_;
  uint64_t draws_ = 0;
};

/// log softmax of one entry. @throws Error{non_finite} like Sampler::pick
float logprob(std::span<const float> logits, TokenId id);
/// The `count` most likely tokens, most likely first (lowest id among equals), from the model's own distribution.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int64_t count);
/// A number in [0, 1) from a seed and a counter, the same on every machine.
double uniform_draw(uint64_t seed, uint64_t counter) noexcept;

}  // namespace slipring
