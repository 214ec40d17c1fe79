#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <optional>

#include <slipring/error.h>
#include <slipring/generate.h>

#include "engine/block_chooser.h"
#include "engine/speculation.h"
#include "engine/text_output.h"

namespace slipring {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

std::string_view to_string(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::end_of_turn:
      return "end_of_turn";
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
  }
  return "unknown";
}

std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, std::string_view text, ControlTokens control) {
  return with_one_bos(tokenizer, tokenizer.encode(text, control));
}

namespace {

/// One run of generate(): what plain decoding and speculation share.
class Generation {
 public:
  Generation(Session& session, const GenerateOptions& options, const TextSink& on_text)
      : session_(session),
        options_(options),
        on_text_(on_text),
        sampler_(options.sampling, session.model().spec().vocab_size),
        output_(session.model().shared_tokenizer(), options.stop),
        end_ids_(session.model().tokenizer().end_of_turn()) {
    sampler_.set_draws(options.first_draw);
    if (Drafts* drafts = session.drafts()) chooser_.emplace(drafts->max_drafts());
  }

  GenerateResult run(std::span<const TokenId> prompt, const PrefillProgress& on_prefill) {
    if (const Drafts* drafts = session_.drafts()) check_block(options_.speculation, drafts->max_drafts());
    result_.prompt_tokens = static_cast<int64_t>(prompt.size());
    const auto prefill_start = Clock::now();
    const std::span<const float> logits = session_.prefill(prompt, on_prefill);
    result_.prefill_seconds = seconds_since(prefill_start);
    history_ = session_.tokens();

    const auto decode_start = Clock::now();
    if (options_.max_tokens != 0) {
      history_.push_back(sampler_.pick(logits, history_));
      sampler_.advance();
      bool ended = take(history_.back());
      while (!ended && session_.length() < session_.context()) ended = step();
    }
    if (const FinishReason finish = result_.finish; finish != FinishReason::cancelled) {
      deliver(output_.finish());
      result_.finish = finish;  // what ended it came before; nothing is left to be cancelled
    }
    result_.decode_seconds = seconds_since(decode_start);
    result_.draws = sampler_.draws();
    return std::move(result_);
  }

 private:
  void deliver(const std::string& piece) {
    result_.text += piece;
    if (!piece.empty() && on_text_ && !on_text_(piece)) result_.finish = FinishReason::cancelled;
  }

  /// Takes one drawn token; true if it was the last.
  bool take(TokenId token) {
    if (!options_.ignore_end && std::find(end_ids_.begin(), end_ids_.end(), token) != end_ids_.end()) {
      result_.finish = FinishReason::end_of_turn;
      return true;
    }
    result_.tokens.push_back(token);
    deliver(output_.add(token));
    if (output_.stopped()) result_.finish = FinishReason::stop;
    const bool full = options_.max_tokens >= 0 && static_cast<int64_t>(result_.tokens.size()) >= options_.max_tokens;
    return full || result_.finish == FinishReason::stop || result_.finish == FinishReason::cancelled;
  }

  /// Guesses that the limits leave room for.
  int64_t wanted_guesses() {
    if (!chooser_) return 0;
    const int64_t block = options_.speculation.block;
    int64_t wanted = block > 0 ? block - 1 : chooser_->next();
    wanted = std::min(wanted, session_.context() - session_.length() - 1);
    if (options_.max_tokens >= 0) {
      wanted = std::min(wanted, options_.max_tokens - static_cast<int64_t>(result_.tokens.size()) - 1);
    }
    return std::max<int64_t>(wanted, 0);
  }

  /// One pass of the model over the last token and the guesses for what follows; true at the end.
  bool step() {
    const int64_t wanted = wanted_guesses();
    const auto start = Clock::now();
    std::vector<TokenId> guesses;
    if (wanted > 0) {
      guesses = session_.drafts()->propose(history_, wanted);
      guesses.resize(std::min(guesses.size(), static_cast<size_t>(wanted)));
      keep_valid_guesses(guesses, session_.model().spec().vocab_size);
    }
    const double propose_seconds = seconds_since(start);
    const auto step_start = Clock::now();
    bool ended = false;
    size_t drawn = 1;
    if (guesses.empty()) {
      const std::span<const float> logits = session_.decode(history_.back());
      history_.push_back(sampler_.pick(logits, history_));
      sampler_.advance();
      ended = take(history_.back());
    } else {
      std::vector<TokenId> tokens{history_.back()};
      tokens.insert(tokens.end(), guesses.begin(), guesses.end());
      session_.verify(tokens, [&](const Step& step) {
        drawn = draw_from_verified(step, 0, guesses, sampler_, history_, [&](TokenId token) {
                  return ended = take(token);
                }).size();
        return static_cast<int64_t>(drawn);
      });
    }
    record(result_.speculation, guesses.size(), drawn - 1);
    result_.speculation.propose_seconds += propose_seconds;
    if (chooser_) {
      chooser_->observe(wanted, static_cast<int64_t>(guesses.size()), static_cast<int64_t>(drawn) - 1,
                        seconds_since(step_start), propose_seconds);
    }
    return ended;
  }

  Session& session_;
  const GenerateOptions& options_;
  const TextSink& on_text_;
  Sampler sampler_;
  TextOutput output_;
  const std::vector<TokenId>& end_ids_;
  std::optional<BlockChooser> chooser_;
  std::vector<TokenId> history_;
  GenerateResult result_;
};

}  // namespace

GenerateResult generate(Session& session, std::span<const TokenId> prompt, const GenerateOptions& options,
                        const TextSink& on_text, const PrefillProgress& on_prefill) {
  return Generation(session, options, on_text).run(prompt, on_prefill);
}

}  // namespace slipring
