// What the server does for a request, apart from HTTP.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include <slipring/chat_template.h>
#include <slipring/scheduler.h>

#include "server/reply_stream.h"
#include "server/wire_request.h"

namespace slipring::server {

/// Threads: all functions from any thread.
class Service {
 public:
  /// @param name  what /v1/models calls the model
  /// @param chat_template  in place of the model's own; empty for that
  /// @throws Error{bad_file, unsupported} for a given template that is none; a model's own that cannot be used only
  /// closes the chat endpoint
  Service(std::shared_ptr<const Model> model, std::string name, const SchedulerOptions& options,
          const std::string& chat_template = "");

  /// Checks, tokenizes and queues; nothing runs in the caller's thread.
  /// @throws ApiError: 400 for what can never run, 503 if the queue is full. The model
  /// that a request names is not looked at: there is one, and clients send names of their own
  std::unique_ptr<ReplyStream> complete(const CompletionRequest& request);
  std::unique_ptr<ReplyStream> chat(const ChatRequest& request);

  std::string tokenize(const TokenizeRequest& request) const;
  std::string detokenize(const std::vector<TokenId>& ids) const;
  std::string models() const;
  std::string health() const;
  /// Layers, and for each running request what its caches hold: what the page draws.
  std::string rings() const;
  SchedulerView view() const { return scheduler_.view(); }
  /// Lets running requests end, at most `patience`; takes no more. Then a template that still runs is ended.
  void drain(std::chrono::milliseconds patience) {
    scheduler_.drain(patience);
    stopped_ = true;
  }

 private:
  std::unique_ptr<ReplyStream> start(const GenerationFields& fields, bool chat,
                                     const std::vector<std::vector<TokenId>>& prompts, const std::string& tools);

  std::shared_ptr<const Model> model_;
  std::string name_;
  int64_t created_;
  std::optional<ChatTemplate> template_;
  std::string template_problem_;
  ReplyDialect dialect_;
  Scheduler scheduler_;
  std::atomic<bool> stopped_ = false;
};

}  // namespace slipring::server
