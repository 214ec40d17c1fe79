#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include <slipring/error.h>
#include <slipring/perplexity.h>
#include <slipring/sampling.h>

namespace slipring {

double PerplexityResult::mean_nll() const noexcept {
  double sum = 0.0;
  for (const float x : nll) sum += x;
  return sum / static_cast<double>(nll.size());
}

double PerplexityResult::perplexity() const noexcept {
  return std::exp(mean_nll());
}

PerplexityResult perplexity(Session& session, std::span<const TokenId> tokens, const PerplexityOptions& options,
                            const PrefillProgress& progress) {
  const int64_t context = options.context > 0 ? options.context : std::min(session.context(), kDefaultContext);
  const auto total = static_cast<int64_t>(tokens.size());
  std::optional<TokenId> bos;
  if (session.model().has_tokenizer() && session.model().tokenizer().add_bos()) bos = session.model().tokenizer().bos();
  const int64_t head = bos ? 1 : 0;
  if (context < 2 || context > session.context()) {
    throw Error(ErrorCode::invalid_argument, {.where = "perplexity context",
                                              .expected = fmt::format("2 to {}", session.context()),
                                              .got = std::to_string(context),
                                              .advice = {}});
  }
  if (options.overlap < 0 || options.overlap > context - head - 1) {
    throw Error(ErrorCode::invalid_argument, {.where = "perplexity overlap",
                                              .expected = fmt::format("0 to {}", context - head - 1),
                                              .got = std::to_string(options.overlap),
                                              .advice = {}});
  }
  if (total + head < 2) {
    throw Error(ErrorCode::invalid_argument, {.where = "text",
                                              .expected = "at least one token to score",
                                              .got = fmt::format("{} tokens", total),
                                              .advice = {}});
  }
  PerplexityResult result;
  // Tokens before `scored` are done. Without BOS the very first token has no past and is never scored.
  int64_t scored = bos ? 0 : 1;
  std::vector<TokenId> window;
  while (scored < total) {
    // A window must show at least one token before the first that it scores: BOS, or a token of the text.
    const int64_t shown = std::max(options.overlap, bos ? int64_t{0} : int64_t{1});
    const int64_t first = std::max<int64_t>(0, scored - shown);
    const int64_t end = std::min(total, first + context - head);
    window.clear();
    if (bos) window.push_back(*bos);
    window.insert(window.end(), tokens.begin() + first, tokens.begin() + end);
    session.clear();
    // Row i predicts window[i + 1]; the last row predicts what comes after the window and is not needed.
    session.score(
        std::span(window).first(window.size() - 1),
        [&](int64_t row, std::span<const float> logits) {
          const int64_t predicted = first + row + 1 - head;  // index into the text
          if (predicted >= scored) result.nll.push_back(-logprob(logits, window[static_cast<size_t>(row) + 1]));
        },
        [&](int64_t done, int64_t) { return !progress || progress(std::min(total, first + done), total); });
    scored = end;
    ++result.windows;
  }
  session.clear();
  return result;
}

}  // namespace slipring
