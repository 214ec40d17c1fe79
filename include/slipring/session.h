// One conversation with a model: its caches and how many tokens they have seen.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <slipring/drafts.h>
#include <slipring/dtype.h>
#include <slipring/model.h>
#include <slipring/tokenizer.h>

namespace slipring {

class Worker;
class Step;
enum class LogitRows : uint8_t;
struct Sequence;

struct SessionOptions {
  DType kv_dtype = DType::F16;  ///< element type of keys and values: F32, F16 or BF16
  int64_t context = 0;          ///< most tokens; 0: the model's own context
  int64_t chunk = 512;  ///< most tokens a prefill step computes at once, >= 1: memory against speed, never results
  int threads = 0;      ///< 1 to 256; 0: all usable cores. Never changes results
};

/// Called between the steps of a long prompt with the tokens done and the total; returning false stops there
/// (Error{cancelled}), and what it throws comes through. What was computed so far is kept either way.
using PrefillProgress = std::function<bool(int64_t done, int64_t total)>;

/// Logits depend on the tokens alone: not on the chunk, the threads, or how they were fed.
/// Every failing call leaves the session as it was before the step that failed, to the byte: tokens, keys, values and
/// what the drafts know. That goes for want of memory (Error{out_of_memory} or std::bad_alloc) in any place, and for
/// what a function given to the session throws. Such a function may not call the session. Threads: one at a time.
class Session {
 public:
  /// @throws Error{invalid_argument} naming the option that is out of range
  explicit Session(std::shared_ptr<const Model> model, const SessionOptions& options = {});
  /// Shares the threads and scratch memory of another session; the two may not run at the same time. `threads` of the
  /// options is not looked at.
  /// @throws Error{invalid_argument} naming the option that is out of range
  Session(std::shared_ptr<const Model> model, const SessionOptions& options, std::shared_ptr<Worker> worker);
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// Appends tokens, in as few steps as the chunk and the rings allow, and gives the logits after the last one
  /// [vocab_size], valid until the next call.
  /// @throws Error{invalid_argument} for no tokens or an id outside the vocabulary; Error{context_full} naming both
  /// numbers;
  ///         nothing is appended then
  std::span<const float> prefill(std::span<const TokenId> tokens, const PrefillProgress& progress = {});
  /// Appends one token; logits after it [vocab_size], valid until the next call. Write-first, so it is the cheap path.
  /// @throws Error{invalid_argument} for an id outside the vocabulary, Error{context_full}, Error{out_of_memory}
  std::span<const float> decode(TokenId token);
  /// prefill() that hands out the logits after every token: row i predicts what follows tokens[i]. The sink gets every
  /// row once, in ascending order of i, [vocab_size], valid until it returns; a step's rows before the step is
  /// appended. If it throws, that step is not appended, and going on from length() gives the step's rows again.
  /// @throws as prefill(), and what the sink throws
  using LogitSink = std::function<void(int64_t i, std::span<const float> logits)>;
  void score(std::span<const TokenId> tokens, const LogitSink& sink, const PrefillProgress& progress = {});

  const Model& model() const noexcept { return *model_; }
  std::shared_ptr<const Model> shared_model() const noexcept { return model_; }
  const SessionOptions& options() const noexcept { return options_; }
  int64_t length() const noexcept;  ///< tokens seen = position of the next one
  int64_t context() const noexcept { return options_.context; }
  int64_t kv_bytes_held() const noexcept;               ///< memory of the caches now
  const std::vector<TokenId>& tokens() const noexcept;  ///< everything seen, in order
  /// Whether truncate(length) is possible: as long as every ring still holds what a query there sees. A ring of W slots
  /// that is full can give up its last token and no more; after that it must take one again first.
  bool can_truncate(int64_t length) const noexcept;
  /// Goes back to the first `length` tokens. Allocates nothing.
  /// @throws Error{invalid_argument} unless can_truncate(length)
  void truncate(int64_t length);
  /// Forgets everything.
  void clear();

  /// Guesses for generate() to verify; null: none. They are told all tokens from here on, so attach them to an empty
  /// session.
  /// @throws Error{invalid_argument} if the session is not empty
  void attach_drafts(std::unique_ptr<Drafts> drafts);
  Drafts* drafts() const noexcept { return drafts_.get(); }

  // For slipring's own layers.
  /// Computes all logits of `tokens` without writing anything, asks `accept` how many of them are to stay, and writes
  /// those.
  /// @throws as prefill(), Error{invalid_argument} unless 0 <= accepted <= tokens, and what `accept` throws
  void verify(std::span<const TokenId> tokens, const std::function<int64_t(const Step&)>& accept);
  Sequence& sequence() noexcept { return *sequence_; }
  const std::shared_ptr<Worker>& worker() const noexcept { return worker_; }

 private:
  void check_room(std::span<const TokenId> tokens) const;
  void run(std::span<const TokenId> tokens, LogitRows rows, const std::function<void(const Step&)>& use);
  void finish(Step& step, std::span<const TokenId> tokens);
  void settle() noexcept;

  std::shared_ptr<const Model> model_;
  SessionOptions options_;
  std::shared_ptr<Worker> worker_;
  std::unique_ptr<Sequence> sequence_;
  std::unique_ptr<Drafts> drafts_;
  std::vector<float> logits_;
};

/// Threads and scratch memory for sessions that take turns.
/// @param threads  1 to 256; 0: all usable cores
/// @throws Error{invalid_argument} for another number, Error{io} if the system starts no more threads
std::shared_ptr<Worker> make_worker(int threads = 0);

}  // namespace slipring
