#include <algorithm>
#include <chrono>

#include <slipring/error.h>
#include <slipring/generate.h>

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
  std::vector<TokenId> ids = tokenizer.encode(text, control);
  const auto bos = tokenizer.bos();
  if (tokenizer.add_bos() && bos && (ids.empty() || ids.front() != *bos)) ids.insert(ids.begin(), *bos);
  return ids;
}

GenerateResult generate(Session& session, std::span<const TokenId> prompt, const GenerateOptions& options,
                        const TextSink& on_text, const PrefillProgress& on_prefill) {
  const Model& model = session.model();
  Sampler sampler(options.sampling, model.spec().vocab_size);
  TextOutput output(model.shared_tokenizer(), options.stop);
  GenerateResult result;
  result.prompt_tokens = static_cast<int64_t>(prompt.size());

  const auto prefill_start = Clock::now();
  std::span<const float> logits = session.prefill(prompt, on_prefill);
  result.prefill_seconds = seconds_since(prefill_start);

  const auto deliver = [&](const std::string& piece) {
    result.text += piece;
    return piece.empty() || !on_text || on_text(piece);
  };
  std::vector<TokenId> history = session.tokens();
  const auto decode_start = Clock::now();
  const auto& end_ids = model.tokenizer().end_of_turn();
  result.finish = FinishReason::length;
  while (options.max_tokens < 0 || static_cast<int64_t>(result.tokens.size()) < options.max_tokens) {
    const TokenId token = sampler.pick(logits, history);
    sampler.advance();
    if (!options.ignore_end && std::find(end_ids.begin(), end_ids.end(), token) != end_ids.end()) {
      result.finish = FinishReason::end_of_turn;
      break;
    }
    result.tokens.push_back(token);
    history.push_back(token);
    if (!deliver(output.add(token))) {
      result.finish = FinishReason::cancelled;
      break;
    }
    if (output.stopped()) {
      result.finish = FinishReason::stop;
      break;
    }
    const bool last = static_cast<int64_t>(result.tokens.size()) == options.max_tokens;
    if (last || session.length() == session.context()) break;
    logits = session.decode(token);
    ++result.decode_steps;
  }
  if (result.finish != FinishReason::cancelled && !deliver(output.finish())) result.finish = FinishReason::cancelled;
  result.decode_seconds = seconds_since(decode_start);
  return result;
}

}  // namespace slipring
