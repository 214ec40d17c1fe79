#include "engine/verify.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include <slipring/error.h>
#include <slipring/full_kv_cache.h>
#include <slipring/sampling.h>
#include <slipring/session.h>
#include <slipring/snapshot.h>

#include "engine/comparison.h"
#include "engine/speculation.h"
#include "engine/verify_reference.h"

namespace slipring {
namespace {

/// Guesses of a check: the first `right` of each block are true.
class KnownDrafts final : public Drafts {
 public:
  KnownDrafts(std::vector<TokenId> truth, std::vector<int64_t> right, int64_t vocab_size)
      : truth_(std::move(truth)), right_(std::move(right)), vocab_size_(vocab_size) {}
  std::string_view name() const noexcept override { return "known"; }
  int64_t max_drafts() const noexcept override { return 15; }
  void observe(std::span<const TokenId>, std::span<const std::span<const float>>) override {}
  void clear() override {}
  bool truncate(int64_t) override { return true; }
  std::vector<TokenId> propose(std::span<const TokenId> history, int64_t count) override {
    const int64_t right = right_[round_++ % right_.size()];
    std::vector<TokenId> guesses;
    for (int64_t i = 0; i < count && history.size() + static_cast<size_t>(i) < truth_.size(); ++i) {
      const TokenId token = truth_[history.size() + static_cast<size_t>(i)];
      guesses.push_back(i < right ? token : static_cast<TokenId>((token + 1) % vocab_size_));
    }
    return guesses;
  }

 private:
  std::vector<TokenId> truth_;
  std::vector<int64_t> right_;
  int64_t vocab_size_;
  size_t round_ = 0;
};

/// The checks that compare the reference with one other way each.
class Verification : public VerifyReference {
 public:
  using VerifyReference::VerifyReference;

  std::vector<VerifyCheck> run() {
    std::vector<VerifyCheck> checks;
    checks.push_back(chunks());
    checks.push_back(token_by_token());
    checks.push_back(threads());
    checks.push_back(verify_batch(*this));
    checks.push_back(guesses());
    checks.push_back(snapshots());
    checks.push_back(verify_programs(*this));
    checks.push_back(full_log());
    return checks;
  }

 private:
  /// Computes from the session's length to the end of the text and compares the tail's logits and the caches.
  void compare_to_end(Session& session, Comparison& comparison, const char* what) const {
    if (session.length() < start()) session.prefill(part(session.length(), start()), progress(what));
    const int64_t from = session.length();
    session.score(
        part(from, length()), [&](int64_t i, std::span<const float> row) { comparison.rows(row, expected(from + i)); },
        progress(what));
    comparison.caches(session.sequence(), end(), layers());
  }

  VerifyCheck chunks() {
    Comparison comparison;
    const std::vector<int64_t> sizes{7, 64, std::max<int64_t>(window() - 1, 33)};
    for (const int64_t chunk : sizes) {
      Session run = session(chunk);
      compare_to_end(run, comparison, "the text in other chunks");
    }
    return std::move(comparison)
        .check("chunk sizes",
               fmt::format("chunks of {}, {} and {} against {}", sizes[0], sizes[1], sizes[2], kVerifyChunk));
  }

  VerifyCheck token_by_token() {
    Comparison comparison;
    Session run = session();
    const bool whole = window() <= kSmallWindow;
    if (!whole) run.sequence() = fork(at_start());
    const int64_t from = run.length();
    for (int64_t position = from; position < length(); ++position) {
      tell("token by token", position - from, length() - from);
      const auto row = run.decode(token(position));
      if (position >= start()) comparison.rows(row, expected(position));
    }
    comparison.caches(run.sequence(), end(), layers());
    return std::move(comparison).check("token by token", fmt::format("written first, from position {}", from));
  }

  VerifyCheck threads() {
    Comparison comparison;
    for (const int count : {1, 2, 3}) {
      Session run = session(kVerifyChunk, make_worker(count));
      run.sequence() = fork(at_early());
      compare_to_end(run, comparison, "other numbers of threads");
    }
    return std::move(comparison).check("threads", fmt::format("1, 2 and 3, from position {}", early()));
  }

  /// Greedy tokens after the reference's start, and the logits that each was chosen from.
  struct Continuation {
    std::vector<TokenId> tokens;
    std::vector<float> logits;
  };

  /// Verifies blocks of up to `block` tokens as generate() does, without needing a vocabulary.
  Continuation speculate(Session& session, int64_t block, const char* what) const {
    SamplingOptions greedy;
    greedy.temperature = 0.0;
    Sampler sampler(greedy, model()->spec().vocab_size);
    Continuation result;
    std::vector<TokenId> history = session.tokens();
    history.push_back(token(start()));
    const auto keep = [&](std::span<const float> row) {
      result.logits.insert(result.logits.end(), row.begin(), row.end());
    };
    while (static_cast<int64_t>(result.tokens.size()) < kVerifyTail - kBeforeWrap) {
      const int64_t left = kVerifyTail - kBeforeWrap - static_cast<int64_t>(result.tokens.size());
      tell(what, static_cast<int64_t>(result.tokens.size()), kVerifyTail - kBeforeWrap);
      std::vector<TokenId> guesses;
      const int64_t wanted = std::min(block - 1, left - 1);
      if (session.drafts() != nullptr && wanted > 0) guesses = session.drafts()->propose(history, wanted);
      guesses.resize(std::min(guesses.size(), static_cast<size_t>(std::max<int64_t>(wanted, 0))));
      keep_valid_guesses(guesses, model()->spec().vocab_size);
      if (guesses.empty()) {
        const auto row = session.decode(history.back());
        keep(row);
        history.push_back(sampler.pick(row, history));
        result.tokens.push_back(history.back());
        continue;
      }
      std::vector<TokenId> tokens{history.back()};
      tokens.insert(tokens.end(), guesses.begin(), guesses.end());
      session.verify(tokens, [&](const Step& step) {
        const auto drawn = draw_from_verified(step, 0, guesses, sampler, history, [](TokenId) { return false; });
        for (size_t row = 0; row < drawn.size(); ++row) keep(step.logits(0, static_cast<int64_t>(row)));
        result.tokens.insert(result.tokens.end(), drawn.begin(), drawn.end());
        return static_cast<int64_t>(drawn.size());
      });
    }
    return result;
  }

  void compare(const Continuation& got, const Continuation& want, Comparison& comparison) const {
    comparison.tokens(got.tokens, want.tokens);
    const size_t rows = std::min(got.tokens.size(), want.tokens.size());
    for (size_t row = 0; row < rows; ++row) {
      comparison.rows(std::span(got.logits).subspan(row * vocab_size(), vocab_size()),
                      std::span(want.logits).subspan(row * vocab_size(), vocab_size()));
    }
  }

  VerifyCheck drafts() {
    if (start() + kVerifyTail > model()->spec().context_length || length() == start())
      return nothing_to_compare("drafts", "too short a context");
    Comparison comparison;
    Session plain = session();
    plain.sequence() = fork(at_start());
    const Continuation want = speculate(plain, 1, "decoding without drafts");
    const auto known = part(0, start() + 1);
    std::vector<TokenId> truth(known.begin(), known.end());
    truth.insert(truth.end(), want.tokens.begin(), want.tokens.end());
    const auto with = [&](std::unique_ptr<Drafts> drafts, int64_t block, bool from_the_start) {
      Session run = session();
      run.attach_drafts(std::move(drafts));
      if (from_the_start) {
        run.prefill(part(0, start()), progress("the text with the drafter"));
      } else {
        run.sequence() = fork(at_start());
      }
      compare(speculate(run, block, "decoding with drafts"), want, comparison);
      comparison.caches(run.sequence(), plain.sequence(), layers());
    };
    const int64_t vocab = model()->spec().vocab_size;
    with(std::make_unique<KnownDrafts>(truth, std::vector<int64_t>{0}, vocab), 5, false);
    with(std::make_unique<KnownDrafts>(truth, std::vector<int64_t>{16}, vocab), 16, false);
    with(std::make_unique<KnownDrafts>(truth, std::vector<int64_t>{0, 1, 2, 3, 4}, vocab), 7, false);
    with(make_ngram_drafts(), 8, false);
    std::string remark = "always wrong, always right, in between, n-gram";
    if (!options().drafter.empty()) {
      auto drafter = load_dflash_drafts(options().drafter, model(), worker());
      const int64_t block = drafter->max_drafts() + 1;
      with(std::move(drafter), block, true);
      remark += ", and the drafter";
    }
    return std::move(comparison).check("drafts on and off", remark);
  }

  /// drafts(), where caches may be so broken that nothing can be drawn.
  VerifyCheck guesses() {
    try {
      return drafts();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::non_finite) throw;
      return {.name = "drafts on and off",
              .cases = 1,
              .largest = std::numeric_limits<double>::infinity(),
              .same = false,
              .remark = error.what()};
    }
  }

  VerifyCheck snapshots() {
    Comparison comparison;
    int64_t taken = 0;
    for (const int64_t position :
         {start(), start() + kBeforeWrap - 1, start() + kBeforeWrap, start() + kBeforeWrap + 1}) {
      if (position <= 0 || position >= length()) continue;
      Session run = session();
      run.sequence() = fork(at_start());
      if (position > start()) run.prefill(part(start(), position));
      const auto snapshot = Snapshot::take(run);
      Session restored = session(5);
      snapshot->restore(restored);
      compare_to_end(restored, comparison, "snapshots");
      ++taken;
    }
    if (taken == 0) return nothing_to_compare("snapshot and restore", "too short a context");
    return std::move(comparison)
        .check("snapshot and restore", fmt::format("at {} lengths from {} on, into chunks of 5", taken, start()));
  }

  VerifyCheck full_log() {
    constexpr const char* kName = "ring against a full log";
    if (window() == 0) return nothing_to_compare(kName, "no layer slides");
    Comparison comparison;
    Session run(model(),
                {.kv_dtype = options().kv_dtype, .context = 0, .chunk = kVerifyChunk, .threads = options().threads},
                worker());
    Sequence log;
    for (const LayerSpec& layer : layers()) {
      log.caches.push_back(std::make_unique<FullKVCache>(
          KVLayout{.n_kv_heads = layer.n_kv_heads, .head_dim = layer.head_dim, .dtype = options().kv_dtype}));
    }
    run.sequence() = std::move(log);
    compare_to_end(run, comparison, "a full log in place of the rings");
    const bool wraps = length() > window();
    return std::move(comparison)
        .check(kName, wraps ? fmt::format("every key kept, under the mask of window {}", window())
                            : fmt::format("the context ends before the window of {}", window()));
  }
};

}  // namespace

int64_t verify_length(const ModelSpec& spec) noexcept {
  const int64_t window = largest_window(spec);
  const int64_t wraps = window <= kSmallWindow ? 3 : 1;
  const int64_t wanted = window > 0 ? wraps * window + kVerifyTail - kBeforeWrap : 4 * kVerifyTail;
  return std::min(std::max(wanted, kVerifyTail), spec.context_length);
}

std::vector<VerifyCheck> verify_model(const std::shared_ptr<const Model>& model, const VerifyOptions& options) {
  return Verification(model, options).run();
}

}  // namespace slipring
