#include "program/interpreter.h"

#include <fmt/format.h>

#include <slipring/error.h>
#include <slipring/full_kv_cache.h>
#include <slipring/ring_kv_cache.h>
#include <slipring/write_first.h>

#include "program/replay.h"
#include "program/verify.h"

namespace slipring {

Interpreter::Interpreter(std::shared_ptr<const Program> program, ThreadPool& pool)
    : program_(std::move(program)), obligations_(obligations(*program_)), ops_(pool) {
  verify(*program_);
  for (const Node& node : program_->nodes) {
    if (node.op == OpKind::logit_rows) logit_rows_ = node.get<LogitRowsUse>().rows;
    if (node.op == OpKind::input_embeddings) embedding_cols_ = node.get<ColumnsUse>().count;
  }
}

std::vector<std::unique_ptr<LayerCache>> make_caches(const Program& program) {
  std::vector<std::unique_ptr<LayerCache>> caches;
  for (const ProgramState& state : program.states) {
    if (state.is_ring()) {
      caches.push_back(std::make_unique<RingKVCache>(state.capacity, state.window, state.layout));
    } else {
      caches.push_back(std::make_unique<FullKVCache>(state.layout));
    }
  }
  return caches;
}

int64_t Interpreter::query_len(const ProgramInput& input) const {
  const bool embeddings = embedding_cols_ > 0;
  const auto given = static_cast<int64_t>(input.embeddings.size());
  const int64_t count = embeddings ? given / embedding_cols_ : static_cast<int64_t>(input.tokens.size());
  if (count >= 1 && (embeddings ? given % embedding_cols_ == 0 && input.tokens.empty() : given == 0)) return count;
  throw Error(
      ErrorCode::invalid_argument,
      {.where = "program " + program_->name,
       .expected = embeddings ? fmt::format("hidden states, {} a token", embedding_cols_) : std::string("token ids"),
       .got = fmt::format("{} token ids and {} floats", input.tokens.size(), input.embeddings.size()),
       .advice = {}});
}

void Interpreter::check_caches(std::span<const std::unique_ptr<LayerCache>> caches) const {
  const auto fail = [this](std::string expected, std::string got) {
    throw Error(ErrorCode::mismatch, {.where = "caches of program " + program_->name,
                                      .expected = std::move(expected),
                                      .got = std::move(got),
                                      .advice = "make them with make_caches(program)"});
  };
  if (caches.size() != program_->states.size()) {
    fail(fmt::format("{} caches", program_->states.size()), std::to_string(caches.size()));
  }
  for (size_t i = 0; i < caches.size(); ++i) {
    const ProgramState& state = program_->states[i];
    const LayerCache& cache = *caches[i];
    const auto* ring = dynamic_cast<const RingKVCache*>(&cache);
    const bool fits = cache.layout() == state.layout && cache.is_ring() == state.is_ring() &&
                      (ring == nullptr || (ring->capacity() == state.capacity && ring->window() == state.window));
    if (!fits) fail("the geometry of state " + state.name, "another one");
    if (cache.offset() != caches[0]->offset()) {
      fail(fmt::format("offset {} in every cache", caches[0]->offset()),
           fmt::format("offset {} in {}", cache.offset(), state.name));
    }
  }
}

void Interpreter::check_obligations(std::span<const std::unique_ptr<LayerCache>> caches, int64_t query_len) const {
  check_write_first(query_len, obligations_.single_token);
  for (const int64_t capacity : obligations_.no_wrap) {
    const int64_t offset = caches[0]->offset();
    if (query_len <= ring::room_before_wrap(offset, capacity)) continue;
    throw Error(ErrorCode::ring_write_wraps,
                {.where = "program " + program_->name,
                 .expected = fmt::format("{} % {} + query_len <= {}", offset, capacity, capacity),
                 .got = fmt::format("query_len {} at offset {}", query_len, offset),
                 .advice = "cut the step with plan_steps()"});
  }
}

ProgramResults Interpreter::run(std::span<const std::unique_ptr<LayerCache>> caches, const ProgramInput& input) {
  const int64_t count = query_len(input);
  check_caches(caches);
  check_obligations(caches, count);
  const int64_t offset = caches.empty() ? 0 : caches[0]->offset();
  const StepSequence sequence{.caches = caches, .offset = offset, .query_len = count, .logits = logit_rows_};
  ProgramResults results;
  try {
    ops_.begin({.mode = program_->mode,
                .sequences = {&sequence, 1},
                .tokens = input.tokens,
                .embeddings = input.embeddings.empty() ? nullptr : input.embeddings.data(),
                .embedding_cols = embedding_cols_,
                .taps = {}});
    Replay replay(*program_, ops_);
    replay.run_all();
    for (const ProgramOutput& output : program_->outputs) {
      const auto values = ops_.data(replay.value(output.value));
      results[output.name].assign(values.begin(), values.end());
    }
    ops_.reserve(0, count);
  } catch (...) {
    ops_.take_back(0);
    ops_.end();
    throw;
  }
  ops_.commit(0, count);
  ops_.end();
  return results;
}

}  // namespace slipring
