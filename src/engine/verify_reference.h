// What the checks of verify_model() compare with: a text computed in large chunks, and the states on its way.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <slipring/session.h>

#include "engine/sequence.h"
#include "engine/verify.h"

namespace slipring {

/// Prompts are computed in steps of so many tokens, unless a check is about other steps.
inline constexpr int64_t kVerifyChunk = 512;
/// Windows up to this are cheap: checks then compute the whole text, and it wraps the rings three times.
inline constexpr int64_t kSmallWindow = 256;
/// Tokens whose logits are compared, the last ones of the text.
inline constexpr int64_t kVerifyTail = 48;
/// So many of them come before a multiple of the window.
inline constexpr int64_t kBeforeWrap = 8;

/// Threads: one at a time; the worker's threads compute.
class VerifyReference {
 public:
  /// Computes the text of `options`, which must outlive this.
  VerifyReference(std::shared_ptr<const Model> model, const VerifyOptions& options);

  const std::shared_ptr<const Model>& model() const noexcept { return model_; }
  const VerifyOptions& options() const noexcept { return options_; }
  const std::shared_ptr<Worker>& worker() const noexcept { return worker_; }
  const std::vector<LayerSpec>& layers() const noexcept { return model_->spec().layers; }
  size_t vocab_size() const noexcept { return static_cast<size_t>(model_->spec().vocab_size); }
  int64_t window() const noexcept { return window_; }  ///< the largest; 0: no layer slides

  int64_t length() const noexcept { return static_cast<int64_t>(text_.size()); }
  int64_t early() const noexcept { return early_; }  ///< two tails before the tail, or 0
  int64_t start() const noexcept { return start_; }  ///< where the tail starts
  const Sequence& at_early() const noexcept { return at_early_; }
  const Sequence& at_start() const noexcept { return at_start_; }
  const Sequence& end() const noexcept { return end_; }

  TokenId token(int64_t position) const { return text_[static_cast<size_t>(position)]; }
  /// Tokens first ... end - 1 of the text.
  std::span<const TokenId> part(int64_t first, int64_t end) const;
  /// Logits after the token at `position`. @pre start() <= position < length()
  std::span<const float> expected(int64_t position) const;

  /// An empty session on caches under test.
  Session session(int64_t chunk = kVerifyChunk, std::shared_ptr<Worker> worker = {}) const;
  /// The state of `sequence`, in caches of their own.
  Sequence fork(const Sequence& sequence) const;

  /// @throws Error{cancelled} if the options' progress says so
  void tell(const char* what, int64_t done, int64_t total) const;
  /// tell(), as sessions call it.
  PrefillProgress progress(const char* what) const;

 private:
  std::shared_ptr<const Model> model_;
  const VerifyOptions& options_;
  int64_t window_;
  std::shared_ptr<Worker> worker_;
  std::vector<TokenId> text_;
  int64_t early_ = 0;
  int64_t start_ = 0;
  std::vector<float> logits_;  // of the tail, [length - start, vocab]
  Sequence at_early_, at_start_, end_;
};

/// A row that has nothing to compare.
VerifyCheck nothing_to_compare(std::string name, std::string why);

// Rows with a file of their own.
/// The text in steps that it shares with other sequences, and with itself at other positions.
VerifyCheck verify_batch(const VerifyReference& reference);
/// The text by the programs that are traced from the model.
VerifyCheck verify_programs(const VerifyReference& reference);

}  // namespace slipring
