// Many requests on one model: prefill chunks and decodes of all of them share each pass over the weights.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <slipring/drafts.h>
#include <slipring/generate.h>
#include <slipring/model.h>
#include <slipring/prefix_store.h>
#include <slipring/session.h>

namespace slipring {

class Step;

struct SchedulerOptions {
  SessionOptions session;      ///< element type, context a request, chunk and threads
  int64_t max_running = 8;     ///< requests that hold caches at once, 1 to 256
  int64_t max_queued = 64;     ///< requests that wait for a place beyond those, 0 to 100000
  int64_t mixed_prefill = 64;  ///< prefill tokens a step while others stream: a long prompt slows streams by so much
  /// Makes the guesser of each request; empty for none. Guesses change the speed, never a token.
  MakeDrafts make_drafts;
  /// Memory for prompts and replies that were computed before; budget_bytes 0: every prompt is computed as a whole.
  PrefixStoreOptions prefixes;
};

/// A request and what it asks to be told.
struct GenerationRequest {
  std::vector<TokenId> prompt;   ///< >= 1 token
  GenerateOptions options;       ///< all of generate()'s; max_tokens below 0: until the context is full
  std::vector<TokenId> end_ids;  ///< tokens that end the reply
  /// Control tokens are reported in the text's place, so that a ReplyParser can read them.
  bool report_control = false;
  std::optional<int64_t> logprobs;  ///< alternatives to report for each token
};

/// News of one token, or of the end.
struct GenerationEvent {
  std::optional<TokenId> token;  ///< absent for the end
  std::string text;              ///< what became certain; comes before `control`
  std::string control;           ///< spelling of a control token, if reported
  TokenLogprob logprob;
  std::vector<TokenLogprob> alternatives;
  std::optional<FinishReason> finish;  ///< of the last event
};

/// A request on its way. Threads: next() from one thread, cancel() from any.
class Generation {
 public:
  /// The next event; nothing after `timeout` without one, or after the last.
  /// @throws the Error that ended the request
  std::optional<GenerationEvent> next(std::chrono::milliseconds timeout);
  /// The request ends before its next step, and its caches are freed.
  void cancel() noexcept { cancelled_ = true; }
  bool cancelled() const noexcept { return cancelled_; }
  bool done() const;
  int64_t prompt_tokens() const noexcept { return prompt_tokens_; }
  /// Tokens of the prompt that were restored instead of computed; certain once there is an event.
  int64_t reused_tokens() const noexcept { return reused_tokens_; }

 private:
  friend class Scheduler;
  void push(GenerationEvent event);
  void finish(GenerationEvent last) noexcept;
  void fail(std::exception_ptr error) noexcept;

  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::deque<GenerationEvent> events_;
  std::optional<GenerationEvent> last_;  // comes after events_; has its place already, so that ending cannot fail
  std::exception_ptr error_;
  bool done_ = false;
  std::atomic<bool> cancelled_{false};
  int64_t prompt_tokens_ = 0;
  std::atomic<int64_t> reused_tokens_{0};
};

/// One sequence as it is between two steps: what the page draws.
struct SequenceView {
  int64_t request = 0;
  int64_t length = 0;  ///< positions in the caches
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  ///< of those, restored instead of computed
  int64_t step_offset = 0;    ///< of the last step
  int64_t step_tokens = 0;    ///< query_len of the last step
  bool prefilling = false;
  bool drafting = false;  ///< there is a guesser, and this is what it did
  int64_t proposed = 0;
  int64_t accepted = 0;
  int64_t kv_bytes = 0;
  int64_t kv_bytes_without_rings = 0;
  std::vector<int64_t> first_held;  ///< oldest position held, for each layer
};

struct SchedulerView {
  int64_t steps = 0;
  int64_t running = 0;
  int64_t queued = 0;
  bool write_first = false;  ///< the last step's path
  double step_seconds = 0.0;
  int64_t step_tokens = 0;
  int64_t prompt_tokens = 0;     ///< computed since the start
  int64_t generated_tokens = 0;  ///< since the start
  int64_t finished = 0;
  int64_t cancelled = 0;
  int64_t failed = 0;
  int64_t rejected = 0;  ///< for a full queue
  int64_t kv_bytes = 0;  ///< of running requests; the prefix store's are in `prefixes`
  PrefixStoreStats prefixes;
  std::vector<SequenceView> sequences;
  /// The sequence that ended last, as it was then; request 0 before any has. Its caches are freed.
  SequenceView last;
};

/// Continuous batching. A request's tokens are those of a run alone, whatever its neighbours do: every part of a step
/// is computed with the same bits as by itself. Running streams get a token in every step; prefills share what
/// mixed_prefill leaves them, evenly, so that neither starves the other. A prompt that begins as an earlier text did
/// starts from the snapshot of it that saves the most; one that begins as a prompt that is being computed waits for it.
/// A request that finds no memory ends with Error{out_of_memory}; where it is not known which one it was, all that run
/// do. The scheduler goes on. Threads: all functions from any thread.
class Scheduler {
 public:
  /// @throws Error{invalid_argument} naming the option that is out of range
  Scheduler(std::shared_ptr<const Model> model, const SchedulerOptions& options);
  /// Cancels what is left.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Queues a request.
  /// @return nothing if the queue is full, or the scheduler is stopping
  /// @throws Error{context_full, invalid_argument} for what could never run: prompt, ids, sampling, stop strings or a
  /// draft block that the drafts do not have
  std::shared_ptr<Generation> submit(GenerationRequest request);
  /// Takes no more requests and waits until those that run have ended, at most `patience`; then cancels the rest.
  void drain(std::chrono::milliseconds patience);
  SchedulerView view() const;
  int64_t context() const noexcept { return options_.session.context; }
  const Model& model() const noexcept { return *model_; }
  const SchedulerOptions& options() const noexcept { return options_; }

 private:
  struct Running;
  struct Waiting {
    int64_t id = 0;
    GenerationRequest request;
    std::shared_ptr<Generation> generation;
  };

  void run();
  void admit();
  void drop_cancelled();
  void step();
  void plan_decode(Running& running);
  void plan_prefills(std::vector<Running*>& parts, bool streaming);
  bool begin(Running& running);
  bool worth_waiting_for(const Running& running, const Running& other) const;
  void keep_prefix(Running& running);
  void take_results(Step& step, size_t part, Running& running);
  std::optional<FinishReason> take(Running& running, TokenId token, std::span<const float> logits, int64_t length);
  bool emit(Running& running, TokenId token, std::span<const float> logits);
  void fail(Running& running) noexcept;
  void end(Running& running, FinishReason reason) noexcept;
  SequenceView view_of(Running& running) const;
  void refresh_view(bool write_first, double seconds, int64_t tokens);

  std::shared_ptr<const Model> model_;
  SchedulerOptions options_;
  PrefixStore store_;
  std::shared_ptr<Worker> worker_;
  int64_t max_drafts_ = 0;  // of make_drafts; 0 without
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Waiting> queue_;
  bool stopping_ = false;
  bool closed_ = false;
  int64_t next_id_ = 1;
  int64_t leaving_ = 0;  // have ended and still count as running: their places are free
  SchedulerView view_;
  std::vector<std::unique_ptr<Running>> running_;  // the engine thread's
  size_t turn_ = 0;                                // which prefill is served first
  std::thread thread_;
};

}  // namespace slipring
