// How well a model predicts a text: each token scored exactly once, with a stated context.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <slipring/session.h>

namespace slipring {

struct PerplexityOptions {
  int64_t context = 0;  ///< tokens a window holds, BOS included; 0: the model's own context (at most kDefaultContext)
  /// Tokens that a window shares with the one before it, to give its first tokens some past; they are not scored again.
  int64_t overlap = 0;
};

struct PerplexityResult {
  std::vector<float> nll;  ///< [scored] negative log likelihood of each scored token, in nats, in text order
  int64_t windows = 0;     ///< sequences that the text was cut into
  double mean_nll() const noexcept;
  double perplexity() const noexcept;  ///< exp(mean_nll)
};

/// Scores `tokens` (without BOS). Where the model has a BOS that it adds, each window begins with it, never scored; the
/// first token of the text is then scored as well, otherwise scoring starts with the second. The value is the same for
/// every chunk size and thread count. The session is cleared before and after.
/// @throws Error{invalid_argument} if nothing is left to score, or options are out of range
PerplexityResult perplexity(Session& session, std::span<const TokenId> tokens, const PerplexityOptions& options = {},
                            const PrefillProgress& progress = {});

}  // namespace slipring
