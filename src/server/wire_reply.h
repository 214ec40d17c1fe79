// The bodies that clients get: one piece of a reply at a time for streams, all pieces put together for the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <slipring/sampling.h>

namespace slipring::server {

/// A generated token with its probability and alternatives, as logprobs report it.
struct TokenReport {
  std::string bytes;  ///< the token's own bytes, perhaps half a character
  float logprob = 0.0F;
  struct Alternative {
    std::string bytes;
    float logprob = 0.0F;
  };
  std::vector<Alternative> alternatives;  ///< most likely first
};

/// A part of a tool call: its beginning has an id and a name, what follows are pieces of the JSON of its arguments.
struct ToolCallPiece {
  int64_t index = 0;
  std::string id;    ///< only in the first piece
  std::string name;  ///< only in the first piece
  std::string arguments;
};

/// What became certain of one choice.
struct ReplyPiece {
  int64_t choice = 0;
  std::string content;
  std::string reasoning;
  std::vector<ToolCallPiece> tool_calls;
  std::vector<TokenReport> tokens;
  std::string finish;  ///< "stop", "length", "tool_calls"; empty until the choice ends

  bool empty() const {
    return content.empty() && reasoning.empty() && tool_calls.empty() && tokens.empty() && finish.empty();
  }
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  ///< of the prompt, restored instead of computed
  int64_t reasoning_tokens = 0;
};

/// What all bodies of one reply share.
struct ReplyHead {
  bool chat = false;
  std::string id;  ///< "chatcmpl-..." or "cmpl-..."
  std::string model;
  int64_t created = 0;  ///< seconds since 1970
  bool logprobs = false;
  bool usage_in_stream = false;
};

/// JSON of streamed chunks, without the "data: " around them.
class ChunkPrinter {
 public:
  explicit ChunkPrinter(ReplyHead head) : head_(std::move(head)) {}
  /// The chunk that opens a chat choice, with its role.
  std::string opening(int64_t choice) const;
  std::string piece(const ReplyPiece& piece);
  /// The last chunk: no choices, the usage.
  std::string usage(const Usage& usage) const;

 private:
  ReplyHead head_;
  std::vector<int64_t> text_offsets_;  // of each choice, in characters, for completions' logprobs
};

/// Joins pieces into one body.
class WholeReply {
 public:
  WholeReply(ReplyHead head, int64_t choices);
  void add(const ReplyPiece& piece);
  std::string print(const Usage& usage) const;

 private:
  struct Choice {
    ReplyPiece all;
  };
  ReplyHead head_;
  std::vector<Choice> choices_;
};

}  // namespace slipring::server
