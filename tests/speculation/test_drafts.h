// Drafts whose guesses a test chooses, and a recorder of what plain decoding leaves in the caches.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <slipring/drafts.h>
#include <slipring/generate.h>

namespace slipring::testing {

/// Asked for `count` guesses at a text of `length` tokens.
using Guess = std::function<std::vector<TokenId>(std::span<const TokenId> history, int64_t count)>;

/// Guesses as told; after every step it calls `after_step`, when everything accepted has been written.
class ScriptedDrafts final : public Drafts {
 public:
  ScriptedDrafts(int64_t most, Guess guess, std::function<void()> after_step = {})
      : most_(most), guess_(std::move(guess)), after_step_(std::move(after_step)) {}
  std::string_view name() const noexcept override { return "scripted"; }
  int64_t max_drafts() const noexcept override { return most_; }
  void observe(std::span<const TokenId>, std::span<const std::span<const float>>) override {}
  void settle() override {
    if (after_step_) after_step_();
  }
  std::vector<TokenId> propose(std::span<const TokenId> history, int64_t count) override {
    return guess_(history, count);
  }
  void clear() override {}
  bool truncate(int64_t) override { return true; }

 private:
  int64_t most_;
  Guess guess_;
  std::function<void()> after_step_;
};

/// Other drafts, watched: after_step as above.
class WatchedDrafts final : public Drafts {
 public:
  WatchedDrafts(std::unique_ptr<Drafts> inner, std::function<void()> after_step)
      : inner_(std::move(inner)), after_step_(std::move(after_step)) {}
  std::string_view name() const noexcept override { return inner_->name(); }
  std::span<const int> taps() const noexcept override { return inner_->taps(); }
  int64_t max_drafts() const noexcept override { return inner_->max_drafts(); }
  void observe(std::span<const TokenId> tokens, std::span<const std::span<const float>> hidden) override {
    inner_->observe(tokens, hidden);
  }
  void settle() override {
    inner_->settle();
    after_step_();
  }
  std::vector<TokenId> propose(std::span<const TokenId> history, int64_t count) override {
    return inner_->propose(history, count);
  }
  void clear() override { inner_->clear(); }
  bool truncate(int64_t length) override { return inner_->truncate(length); }

 private:
  std::unique_ptr<Drafts> inner_;
  std::function<void()> after_step_;
};

/// Keys and values of every position and layer as token-by-token decoding without drafts wrote them.
class PlainLog {
 public:
  PlainLog(const std::shared_ptr<const Model>& model, std::span<const TokenId> tokens, DType kv);
  /// Empty if the session's caches hold exactly what plain decoding would at this length: the same positions with the
  /// same bytes; else what differs.
  std::string difference(Session& session) const;

 private:
  std::vector<std::vector<std::string>> bytes_;  // by layer, then position: K and V
  std::vector<LayerSpec> layers_;
};

}  // namespace slipring::testing
