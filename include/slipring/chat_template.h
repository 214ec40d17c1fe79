// From a conversation to the text and tokens that a model expects, by the template in the model's own files.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <slipring/tokenizer.h>

namespace slipring {

/// A conversation, in the JSON that the Hugging Face templates are written for.
struct ChatInput {
  std::string messages = "[]";              ///< JSON array of {"role": ..., "content": ..., ...}
  std::string tools;                        ///< JSON array of tool descriptions; empty for none
  std::string variables;                    ///< JSON object of further names for the template; empty for none
  bool add_generation_prompt = true;        ///< end with the opening of the assistant's turn
  std::optional<std::time_t> now;           ///< what strftime_now() tells; the present time if absent
  const std::atomic<bool>* stop = nullptr;  ///< set by another thread, it ends the rendering with Error{cancelled}
};

/// A parsed chat template: the part of Jinja that published templates use, with trim_blocks and lstrip_blocks, run
/// without side effects and within limits on depth, steps and output, because a template comes out of a model file.
/// Immutable; safe to share between threads.
/// Source: the behaviour of Hugging Face transformers' apply_chat_template on jinja2; tests/text compare with both.
class ChatTemplate {
 public:
  /// @throws Error{bad_file} naming the line, Error{unsupported} for a tag that would load other files
  explicit ChatTemplate(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// The prompt as text. Control tokens that users wrote are in it like any other text: to tokenize, use encode().
  /// @throws Error{invalid_argument} with the template's own words where it refuses, for JSON that is none, and past a
  /// limit
  std::string render(const ChatInput& input, std::string_view bos_token, std::string_view eos_token) const;

  /// The prompt as ids: the template's scaffold may use control tokens, what messages and tools say never does.
  /// Exactly one BOS in front where the model wants one, whether the template writes it or not.
  /// @throws as render() and Tokenizer::encode()
  std::vector<TokenId> encode(const ChatInput& input, const Tokenizer& tokenizer) const;

 private:
  struct Tree;
  std::unique_ptr<const Tree> tree_;
};

}  // namespace slipring
