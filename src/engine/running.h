// One request while it holds caches: the scheduler's own.
#pragma once

#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include <slipring/error.h>
#include <slipring/scheduler.h>
#include <slipring/snapshot.h>

#include "engine/block_chooser.h"
#include "engine/sequence.h"
#include "engine/text_output.h"

namespace slipring {

/// The exception being handled; std::bad_alloc as an Error that says what to do, if there is memory for one.
inline std::exception_ptr current_error() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    try {
      throw Error(ErrorCode::out_of_memory, {.where = "request",
                                             .expected = {},
                                             .got = "no memory left",
                                             .advice = "try again later, with a shorter text or a smaller context"});
    } catch (...) {
      return std::current_exception();
    }
  } catch (...) {
    return std::current_exception();
  }
}

struct Scheduler::Running {
  Running(Waiting waiting, const std::shared_ptr<const Model>& model, const SessionOptions& options,
          const MakeDrafts& make_drafts, std::shared_ptr<Worker> worker)
      : id(waiting.id),
        request(std::move(waiting.request)),
        generation(std::move(waiting.generation)),
        session(model, options, std::move(worker)),
        sampler(request.options.sampling, model->spec().vocab_size),
        output(std::make_unique<TextOutput>(model->shared_tokenizer(), request.options.stop)),
        history(request.prompt) {
    sampler.set_draws(request.options.first_draw);
    if (!make_drafts) return;
    session.attach_drafts(make_drafts(session.worker()));
    chooser.emplace(drafts()->max_drafts());
  }

  Sequence& sequence() { return session.sequence(); }
  int64_t length() const { return session.length(); }
  int64_t prompt_length() const { return static_cast<int64_t>(request.prompt.size()); }
  bool prefilling() const { return length() < prompt_length(); }
  Drafts* drafts() const { return session.drafts(); }

  int64_t id;
  GenerationRequest request;
  std::shared_ptr<Generation> generation;
  Session session;
  Sampler sampler;
  std::unique_ptr<TextOutput> output;
  std::vector<TokenId> history;  // prompt and output, the token drawn last included
  int64_t generated = 0;
  bool over = false;
  std::optional<FinishReason> finish;  // why it is over; nothing if it failed
  // The prefix store's part
  bool begun = false;                        // the store was asked, and the caches hold what it gave
  int64_t snapshot_at = 0;                   // the prompt is computed up to here, and leaves a snapshot
  std::shared_ptr<const Snapshot> snapshot;  // the last one, whose keys later ones share
  // Speculation
  std::optional<BlockChooser> chooser;
  SpeculationStats speculation;
  // This step's part: of the prompt, or the last token and guesses.
  std::vector<TokenId> tokens;
  std::vector<TokenId> guesses;
  int64_t wanted = 0;
  double propose_seconds = 0.0;
  int64_t step_offset = 0;
  int64_t step_tokens = 0;
};

}  // namespace slipring
