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
  committed_.resize(parts_.size());
  try {
    run(decoder, taps);
  } catch (...) {
    end();
    throw;
  }
}

Step::~Step() {
  end();
}

void Step::run(const Decoder& decoder, std::span<const int> taps) {
  const bool write_first =
      std::all_of(parts_.begin(), parts_.end(), [](const StepPart& part) { return part.tokens.size() == 1; });
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
}

void Step::reserve(size_t part, int64_t count) {
  if (count < 0 || count > sequences_[part].query_len) {
    throw Error(ErrorCode::invalid_argument, {.where = "step commit",
                                              .expected = fmt::format("0 to {} tokens", sequences_[part].query_len),
                                              .got = std::to_string(count),
                                              .advice = {}});
  }
  std::vector<TokenId>& tokens = parts_[part].sequence->tokens;
  const size_t needed = tokens.size() + static_cast<size_t>(count);
  if (needed > tokens.capacity()) tokens.reserve(std::max(needed, 2 * tokens.capacity()));
  worker_.ops.reserve(part, count);
}

void Step::commit(size_t part, int64_t count) {
  if (count == 0) return;
  worker_.ops.commit(part, count);
  std::vector<TokenId>& tokens = parts_[part].sequence->tokens;
  tokens.insert(tokens.end(), parts_[part].tokens.begin(), parts_[part].tokens.begin() + count);
  committed_[part] = 1;
}

void Step::end() noexcept {
  logits_ = {};
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (committed_[i] == 0) worker_.ops.take_back(i);
  }
  worker_.ops.end();
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
