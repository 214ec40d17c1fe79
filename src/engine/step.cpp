#include "engine/step.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>

#include <slipring/error.h>

namespace slipring {

Step::Step(const Decoder& decoder, Worker& worker, std::span<const StepPart> parts, std::span<const int> taps)
    : worker_(worker), parts_(parts.begin(), parts.end()) {
  int64_t rows = 0;
  int64_t logit_rows = 0;
  for (const StepPart& part : parts_) {
    const auto query_len = static_cast<int64_t>(part.tokens.size());
    sequences_.push_back({.caches = part.sequence->caches,
                          .offset = part.sequence->length(),
                          .query_len = query_len,
                          .logits = part.logits});
    first_row_.push_back(rows);
    first_logit_.push_back(logit_rows);
    rows += query_len;
    logit_rows += part.logits == LogitRows::all ? query_len : part.logits == LogitRows::last ? 1 : 0;
    tokens_.insert(tokens_.end(), part.tokens.begin(), part.tokens.end());
  }
  vocab_size_ = decoder.spec().vocab_size;
  hidden_size_ = decoder.spec().hidden_size;
  try {
    run(decoder, taps);
  } catch (...) {
    roll_back();
    throw;
  }
}

Step::~Step() {
  logits_ = {};
  worker_.ops.end();
}

void Step::run(const Decoder& decoder, std::span<const int> taps) {
  const bool write_first = std::all_of(parts_.begin(), parts_.end(),
                                       [](const StepPart& part) { return part.commit && part.tokens.size() == 1; });
  // Memory first: a ring that has taken many tokens cannot go back, so nothing may fail once the caches are written.
  for (size_t i = 0; i < parts_.size(); ++i) {
    std::vector<TokenId>& tokens = parts_[i].sequence->tokens;
    tokens.reserve(tokens.size() + parts_[i].tokens.size());
    if (parts_[i].commit) reserve(i, sequences_[i].query_len);
  }
  worker_.ops.begin({.mode = write_first ? StepMode::main : StepMode::prefill,
                     .sequences = sequences_,
                     .tokens = tokens_,
                     .taps = taps});
  const Value hidden = decoder.forward(worker_.ops);
  if (worker_.ops.taps().size() != taps.size()) {
    throw Error(ErrorCode::unsupported, {.where = "drafter",
                                         .expected = fmt::format("a model that gives {} hidden states", taps.size()),
                                         .got = fmt::format("one that gives {} of them", worker_.ops.taps().size()),
                                         .advice = "export the bundle with -d DRAFTER, or run it with --no-draft"});
  }
  const bool any_logits =
      std::any_of(parts_.begin(), parts_.end(), [](const StepPart& part) { return part.logits != LogitRows::none; });
  if (any_logits) logits_ = decoder.logits(worker_.ops, hidden);
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].commit) write(i, sequences_[i].query_len);
  }
}

void Step::commit(size_t part, int64_t count) {
  if (count < 0 || count > sequences_[part].query_len) {
    throw Error(ErrorCode::invalid_argument, {.where = "step commit",
                                              .expected = fmt::format("0 to {} tokens", sequences_[part].query_len),
                                              .got = std::to_string(count),
                                              .advice = {}});
  }
  try {
    reserve(part, count);
  } catch (...) {
    give_back(part);
    throw;
  }
  write(part, count);
}

void Step::write(size_t part, int64_t count) {
  worker_.ops.commit(part, count);
  std::vector<TokenId>& tokens = parts_[part].sequence->tokens;
  tokens.insert(tokens.end(), parts_[part].tokens.begin(), parts_[part].tokens.begin() + count);
}

void Step::reserve(size_t part, int64_t count) {
  for (const auto& cache : parts_[part].sequence->caches) cache->reserve(count);
}

void Step::give_back(size_t part) noexcept {
  const int64_t offset = sequences_[part].offset;
  for (const auto& cache : parts_[part].sequence->caches) {
    if ((!cache->is_ring() || cache->offset() > offset) && cache->can_resume_at(offset)) cache->truncate(offset);
  }
}

void Step::roll_back() noexcept {
  logits_ = {};
  worker_.ops.end();
  // A write-first step may have written some layers. The positions they evicted had left the window of the next query
  // already, so going back is always possible. Other steps write last.
  for (size_t i = 0; i < parts_.size(); ++i) give_back(i);
}

std::span<const float> Step::logits(size_t part, int64_t row) const {
  return worker_.ops.data(logits_).subspan(static_cast<size_t>((first_logit_[part] + row) * vocab_size_),
                                           static_cast<size_t>(vocab_size_));
}

std::span<const float> Step::tapped(size_t part, size_t tap) const {
  return worker_.ops.data(worker_.ops.taps()[tap])
      .subspan(static_cast<size_t>(first_row_[part] * hidden_size_),
               static_cast<size_t>(sequences_[part].query_len * hidden_size_));
}

}  // namespace slipring
