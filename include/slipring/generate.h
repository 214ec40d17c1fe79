// Prompt in, text out: the loop around a session, a sampler and a detokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <slipring/sampling.h>
#include <slipring/session.h>

namespace slipring {

struct GenerateOptions {
  int64_t max_tokens = -1;        ///< tokens to generate; below 0: until the model ends its turn or the context is full
  bool ignore_end = false;        ///< go on past the model's end-of-turn tokens
  std::vector<std::string> stop;  ///< generation ends before any of these; never shown
  SamplingOptions sampling;
  uint64_t first_draw = 0;         ///< number of the first draw; a text that goes on draws on where it stopped
  SpeculationOptions speculation;  ///< used where the session has drafts; the text is the same without
};

enum class FinishReason : uint8_t {
  end_of_turn,  ///< the model said so
  stop,         ///< a stop string appeared
  length,       ///< max_tokens or the context's end
  cancelled     ///< on_text returned false
};
std::string_view to_string(FinishReason reason) noexcept;

struct GenerateResult {
  std::vector<TokenId> tokens;  ///< generated tokens, without the one that ended the turn
  std::string text;             ///< valid UTF-8; what on_text was given, joined
  FinishReason finish = FinishReason::length;
  int64_t prompt_tokens = 0;
  uint64_t draws = 0;  ///< number of the next draw
  double prefill_seconds = 0.0;
  double decode_seconds = 0.0;
  SpeculationStats speculation;  ///< steps counts the model passes of the decode phase, with and without drafts
};

/// Called with each piece of text as soon as it is certain; returning false stops the generation.
using TextSink = std::function<bool(std::string_view piece)>;

/// Feeds `prompt` to the session and generates. The session keeps prompt and output, except the last token drawn.
/// @throws as Session::prefill and Sampler::pick; text handed out before stays valid
GenerateResult generate(Session& session, std::span<const TokenId> prompt, const GenerateOptions& options,
                        const TextSink& on_text = {}, const PrefillProgress& on_prefill = {});

/// Token ids of a prompt as the model expects them: with exactly one BOS in front where the model wants one.
std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, std::string_view text,
                                   ControlTokens control = ControlTokens::as_text);

}  // namespace slipring
