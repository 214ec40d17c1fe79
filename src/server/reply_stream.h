// The choices of one request, as one stream of pieces: what streamed and whole replies are both made of.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include <slipring/reply_parser.h>
#include <slipring/scheduler.h>

#include "server/wire_reply.h"

namespace slipring::server {

/// Threads: one at a time.
class ReplyStream {
 public:
  ReplyStream(std::shared_ptr<const Model> model, ReplyHead head, ReplyDialect dialect);
  /// Cancels what still runs.
  ~ReplyStream();
  ReplyStream(const ReplyStream&) = delete;
  ReplyStream& operator=(const ReplyStream&) = delete;

  /// One more choice, numbered from 0. Usage counts a prompt once, however many choices it has.
  void add(std::shared_ptr<Generation> generation, const ToolParameterTypes& types, bool counts_prompt);
  void cancel() noexcept;

  /// The next piece that holds anything; nothing if none came within `timeout`, or if done().
  /// @throws the Error that ended a choice
  std::optional<ReplyPiece> next(std::chrono::milliseconds timeout);
  bool done() const noexcept { return open_ == 0; }

  const ReplyHead& head() const noexcept { return head_; }
  int64_t choices() const noexcept { return static_cast<int64_t>(choices_.size()); }
  const Usage& usage() const noexcept { return usage_; }
  /// Seconds from the start to the first token; negative before it came.
  double first_token_seconds() const noexcept { return first_token_seconds_; }
  double seconds() const;

 private:
  struct Choice {
    std::shared_ptr<Generation> generation;
    std::optional<ReplyParser> parser;
    bool counts_prompt = false;
    int64_t tool_calls = 0;
    bool over = false;
  };

  ReplyPiece read(Choice& choice, int64_t index, const GenerationEvent& event);
  void take(Choice& choice, const std::vector<ReplyEvent>& events, ReplyPiece& piece) const;

  std::shared_ptr<const Model> model_;
  ReplyHead head_;
  ReplyDialect dialect_;
  std::vector<Choice> choices_;
  size_t turn_ = 0;
  int64_t open_ = 0;
  Usage usage_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double first_token_seconds_ = -1.0;
};

/// "call_" and the like with 24 random letters and digits.
std::string random_id(const char* prefix);

}  // namespace slipring::server
