// DFlash: the drafter guesses a whole block from the target's hidden states.
#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include <slipring/drafts.h>
#include <slipring/error.h>

#include "engine/sequence.h"
#include "engine/state_bytes.h"
#include "engine/worker.h"
#include "formats/model_files.h"
#include "models/decoder.h"
#include "models/drafter.h"

namespace slipring {
namespace {

[[noreturn]] void mismatch(const std::filesystem::path& drafter, std::string expected, std::string got) {
  throw Error(ErrorCode::mismatch, {.where = "drafter " + drafter.string(),
                                    .expected = std::move(expected),
                                    .got = std::move(got),
                                    .advice = "use the drafter that was made for this model"});
}

void check_pair(const Drafter& drafter, const ModelFiles& files, const Model& target) {
  const ModelSpec& spec = target.spec();
  const DrafterSpec& draft = drafter.spec();
  if (draft.hidden_size != spec.hidden_size) {
    mismatch(files.path(), fmt::format("hidden size {} as {}", spec.hidden_size, target.path().string()),
             std::to_string(draft.hidden_size));
  }
  if (draft.taps.back() >= static_cast<int>(spec.layers.size())) {
    mismatch(files.path(), fmt::format("tapped layers below {}", spec.layers.size()),
             fmt::format("layer {}", draft.taps.back()));
  }
  if (draft.mask_token >= spec.vocab_size) {
    mismatch(files.path(), fmt::format("a mask token below {}", spec.vocab_size), std::to_string(draft.mask_token));
  }
  if (!target.has_tokenizer()) return;
  std::shared_ptr<const Tokenizer> vocabulary;
  try {
    vocabulary = Tokenizer::load(files);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    return;  // a drafter needs no vocabulary of its own
  }
  const Tokenizer& own = target.tokenizer();
  if (vocabulary->size() != own.size()) {
    mismatch(files.path(), fmt::format("a vocabulary of {} tokens", own.size()), std::to_string(vocabulary->size()));
  }
  for (TokenId id = 0; id < own.size(); ++id) {
    if (vocabulary->token_text(id) == own.token_text(id)) continue;
    mismatch(files.path(), fmt::format("token {} to be \"{}\"", id, own.token_text(id)),
             fmt::format("\"{}\"", vocabulary->token_text(id)));
  }
}

class DFlashDrafts final : public Drafts {
 public:
  DFlashDrafts(std::shared_ptr<const Drafter> drafter, std::shared_ptr<const Model> target,
               std::shared_ptr<Worker> worker)
      : drafter_(std::move(drafter)),
        target_(std::move(target)),
        worker_(std::move(worker)),
        context_(make_sequence(drafter_->spec().layers, DType::F16)) {}

  std::string_view name() const noexcept override { return "DFlash"; }
  std::span<const int> taps() const noexcept override { return drafter_->spec().taps; }
  int64_t max_drafts() const noexcept override { return drafter_->spec().block_size - 1; }
  int64_t kv_bytes_held() const noexcept override { return bytes_held(context_); }

  void observe(std::span<const TokenId> tokens, std::span<const std::span<const float>> hidden) override {
    if (lost_) return;
    const auto width = static_cast<size_t>(drafter_->spec().hidden_size);
    const size_t old = pending_.size();
    pending_.resize(old + tokens.size() * hidden.size() * width);
    float* out = pending_.data() + old;
    for (size_t row = 0; row < tokens.size(); ++row) {
      for (const std::span<const float> tap : hidden) {
        std::memcpy(out, tap.data() + row * width, width * sizeof(float));
        out += width;
      }
    }
  }

  // In large pieces: that is cheap, and the buffer stays small however long no guess is wanted.
  void settle() override {
    if (pending_rows() >= kInjectAt) inject();
  }

  std::vector<TokenId> propose(std::span<const TokenId> history, int64_t count) override {
    if (lost_) return {};
    inject();
    const DrafterSpec& spec = drafter_->spec();
    const int64_t block = std::min(count + 1, spec.block_size);
    const Linear& table = target_->decoder().embedding_table();
    std::vector<float> embeddings(static_cast<size_t>(block * spec.hidden_size));
    for (int64_t row = 0; row < block; ++row) {
      table.matrix.dequantise_row(row == 0 ? history.back() : spec.mask_token,
                                  embeddings.data() + row * spec.hidden_size);
    }
    const StepSequence part = step_sequence(block, LogitRows::all);
    NativeOps& ops = worker_->ops;
    ops.begin({.mode = StepMode::prefill,
               .sequences = {&part, 1},
               .tokens = {},
               .embeddings = embeddings.data(),
               .embedding_cols = spec.hidden_size,
               .taps = {}});
    std::vector<TokenId> guesses;
    {
      const Value logits = target_->decoder().logits(ops, drafter_->draft(ops));
      const auto vocab = static_cast<size_t>(target_->spec().vocab_size);
      for (int64_t row = 1; row < block; ++row) {
        const auto scores = ops.data(logits).subspan(static_cast<size_t>(row) * vocab, vocab);
        guesses.push_back(static_cast<TokenId>(std::max_element(scores.begin(), scores.end()) - scores.begin()));
      }
    }
    ops.end();
    return guesses;
  }

  void clear() override {
    lost_ = false;
    pending_.clear();
    length_ = 0;
    for (const auto& cache : context_.caches) cache->clear();
  }

  // Drafter, positions injected, rows not yet injected, then for each layer its positions' keys and values.
  std::vector<std::byte> save() const override {
    std::vector<std::byte> state;
    if (lost_) return state;
    ByteAppender out(state);
    out.number(drafter_->fingerprint());
    out.number(static_cast<uint64_t>(length_));
    out.number(static_cast<uint64_t>(pending_rows()));
    out.bytes(std::as_bytes(std::span(pending_)));
    for (const auto& cache : context_.caches) {
      out.number(static_cast<uint64_t>(length_ - cache->first_held()));
      if (cache->first_held() == length_) continue;
      const KVBlock held = copy_positions(*cache, cache->first_held());
      out.bytes(held.k().span());
      out.bytes(held.v().span());
    }
    return state;
  }

  void restore(int64_t length, std::span<const std::byte> state) override {
    if (state.empty()) {
      clear();
      lost_ = length > 0;
      return;
    }
    const std::string where = "drafter's part of a snapshot";
    ByteCursor cursor(state, where);
    if (cursor.number<uint64_t>("drafter") != drafter_->fingerprint()) {
      throw Error(ErrorCode::mismatch, {.where = where,
                                        .expected = "the state of the drafter in use",
                                        .got = "that of another one",
                                        .advice = "load the session with its own drafter, or without any"});
    }
    const auto injected = cursor.number<uint64_t>("positions");
    const auto rows = cursor.number<uint64_t>("rows");
    const auto row_bytes = static_cast<uint64_t>(row_width()) * sizeof(float);
    if (injected > static_cast<uint64_t>(length) || rows != static_cast<uint64_t>(length) - injected ||
        rows > cursor.left() / row_bytes) {
      throw_bad_file(where, fmt::format("{} and {} positions", injected, rows), fmt::format("{} together", length));
    }
    const auto taps = cursor.take(rows * row_bytes, "hidden states");
    Sequence context = make_sequence(drafter_->spec().layers, DType::F16);
    for (const auto& cache : context.caches) {
      const auto held = cursor.number<uint64_t>("positions of a layer");
      if (held > injected)
        throw_bad_file(where, fmt::format("{} positions", held), fmt::format("at most {}", injected));
      if (held == 0 && injected == 0) continue;
      if (held == 0) throw_bad_file(where, "no positions", "at least one");
      cache->restore(static_cast<int64_t>(injected),
                     read_positions(cursor, cache->layout(), static_cast<int64_t>(held)));
    }
    if (cursor.left() > 0) throw_bad_file(where, fmt::format("{} bytes too many", cursor.left()), "its end");
    std::vector<float> pending(rows * static_cast<uint64_t>(row_width()));
    if (rows > 0) std::memcpy(pending.data(), taps.data(), taps.size());
    // From here on nothing fails.
    lost_ = false;
    context_ = std::move(context);
    length_ = static_cast<int64_t>(injected);
    pending_ = std::move(pending);
  }

  bool truncate(int64_t length) override {
    if (lost_) return true;
    const int64_t injected = length_;
    if (length >= injected) {
      pending_.resize(static_cast<size_t>((length - injected) * row_width()));
      return true;
    }
    for (const auto& cache : context_.caches) {
      if (!cache->can_resume_at(length)) return false;
    }
    for (const auto& cache : context_.caches) cache->truncate(length);
    length_ = length;
    pending_.clear();
    return true;
  }

 private:
  static constexpr int64_t kInjectAt = 64;

  int64_t row_width() const {
    return drafter_->spec().hidden_size * static_cast<int64_t>(drafter_->spec().taps.size());
  }
  int64_t pending_rows() const { return static_cast<int64_t>(pending_.size()) / row_width(); }

  StepSequence step_sequence(int64_t query_len, LogitRows logits) const {
    return {.caches = context_.caches, .offset = length_, .query_len = query_len, .logits = logits};
  }

  void inject() {
    const int64_t rows = pending_rows();
    if (rows == 0) return;
    const StepSequence part = step_sequence(rows, LogitRows::none);
    NativeOps& ops = worker_->ops;
    ops.begin({.mode = StepMode::prefill,
               .sequences = {&part, 1},
               .tokens = {},
               .embeddings = pending_.data(),
               .embedding_cols = row_width(),
               .taps = {}});
    try {
      drafter_->inject(ops);
      ops.reserve(0, rows);
    } catch (...) {
      ops.take_back(0);
      ops.end();
      throw;
    }
    ops.commit(0, rows);
    ops.end();
    length_ += rows;
    pending_.clear();
  }

  std::shared_ptr<const Drafter> drafter_;
  std::shared_ptr<const Model> target_;
  std::shared_ptr<Worker> worker_;
  bool lost_ = false;           // the context is unknown since a snapshot without it: no guesses
  Sequence context_;            // the drafter's rings; its tokens are not kept
  int64_t length_ = 0;          // positions injected
  std::vector<float> pending_;  // [rows, taps * hidden_size] observed but not yet injected
};

}  // namespace

namespace {

std::shared_ptr<const Drafter> load_checked(const std::filesystem::path& path, const Model& target, ThreadPool& pool) {
  const auto files = ModelFiles::open(path);
  auto drafter = load_drafter(*files, pool);
  check_pair(*drafter, *files, target);
  return drafter;
}

}  // namespace

std::unique_ptr<Drafts> load_dflash_drafts(const std::filesystem::path& path, std::shared_ptr<const Model> target,
                                           std::shared_ptr<Worker> worker) {
  auto drafter = load_checked(path, *target, worker->pool);
  return std::make_unique<DFlashDrafts>(std::move(drafter), std::move(target), std::move(worker));
}

MakeDrafts load_dflash_drafter(const std::filesystem::path& path, std::shared_ptr<const Model> target, int threads) {
  ThreadPool pool(threads);
  auto drafter = load_checked(path, *target, pool);
  return [drafter = std::move(drafter), target = std::move(target)](std::shared_ptr<Worker> worker) {
    return std::make_unique<DFlashDrafts>(drafter, target, std::move(worker));
  };
}

}  // namespace slipring
