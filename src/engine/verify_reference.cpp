#include "engine/verify_reference.h"

#include <algorithm>

#include <slipring/error.h>

#include "engine/state_bytes.h"

namespace slipring {

VerifyReference::VerifyReference(std::shared_ptr<const Model> model, const VerifyOptions& options)
    : model_(std::move(model)),
      options_(options),
      window_(largest_window(model_->spec())),
      worker_(make_worker(options.threads)),
      text_(options.text) {
  const auto length = static_cast<size_t>(verify_length(model_->spec()));
  uint64_t state = 1;
  while (text_.size() < length) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    text_.push_back(static_cast<TokenId>((state >> 33) % vocab_size()));
  }
  text_.resize(length);
  start_ = std::max<int64_t>(0, static_cast<int64_t>(length) - kVerifyTail);
  early_ = std::max<int64_t>(0, start_ - 2 * kVerifyTail);

  Session run = session();
  const char* what = "the text in large chunks";
  if (early_ > 0) run.prefill(part(0, early_), progress(what));
  at_early_ = fork(run.sequence());
  if (start_ > early_) run.prefill(part(early_, start_), progress(what));
  at_start_ = fork(run.sequence());
  logits_.reserve(static_cast<size_t>(this->length() - start_) * vocab_size());
  run.score(
      part(start_, this->length()),
      [this](int64_t, std::span<const float> row) { logits_.insert(logits_.end(), row.begin(), row.end()); },
      progress(what));
  end_ = fork(run.sequence());
}

std::span<const TokenId> VerifyReference::part(int64_t first, int64_t end) const {
  return std::span(text_).subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
}

std::span<const float> VerifyReference::expected(int64_t position) const {
  return std::span(logits_).subspan(static_cast<size_t>(position - start_) * vocab_size(), vocab_size());
}

Session VerifyReference::session(int64_t chunk, std::shared_ptr<Worker> worker) const {
  Session result(model_, {.kv_dtype = options_.kv_dtype, .context = 0, .chunk = chunk, .threads = options_.threads},
                 worker ? std::move(worker) : worker_);
  result.sequence() = options_.make_caches(layers(), options_.kv_dtype);
  return result;
}

Sequence VerifyReference::fork(const Sequence& sequence) const {
  Sequence result = options_.make_caches(layers(), options_.kv_dtype);
  result.tokens = sequence.tokens;
  for (size_t i = 0; i < layers().size() && sequence.length() > 0; ++i) {
    const LayerCache& cache = *sequence.caches[i];
    result.caches[i]->restore(cache.offset(), copy_positions(cache, cache.first_held()));
  }
  return result;
}

void VerifyReference::tell(const char* what, int64_t done, int64_t total) const {
  if (!options_.progress || options_.progress(what, done, total)) return;
  throw Error(ErrorCode::cancelled, {.where = "verify", .expected = {}, .got = "stopped", .advice = {}});
}

PrefillProgress VerifyReference::progress(const char* what) const {
  return [this, what](int64_t done, int64_t total) {
    tell(what, done, total);
    return true;
  };
}

VerifyCheck nothing_to_compare(std::string name, std::string why) {
  return {.name = std::move(name), .cases = 0, .largest = 0.0, .same = true, .remark = std::move(why)};
}

}  // namespace slipring
