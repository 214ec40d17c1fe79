// A step that fails, wherever it fails, leaves every cache as it was: rings that took many tokens cannot go back, so
// nothing may be written before all that can fail has been done.
#include <filesystem>
#include <gtest/gtest.h>
#include <limits>

#include <slipring/error.h>
#include <slipring/full_kv_cache.h>
#include <slipring/session.h>

#include "engine/sequence.h"
#include "engine/state_bytes.h"

namespace slipring::testing {
namespace {

/// A growing cache that finds no memory when told so.
class StarvedCache final : public LayerCache {
 public:
  StarvedCache(KVLayout layout, const bool& starved)
      : LayerCache(layout, "StarvedCache"), starved_(starved), inner_(layout) {}

  bool is_ring() const noexcept override { return false; }
  int64_t first_held() const noexcept override { return 0; }
  int64_t room_before_wrap() const noexcept override { return inner_.room_before_wrap(); }
  int64_t bytes_held() const noexcept override { return inner_.bytes_held(); }
  KVView held_after(int64_t count) const override { return inner_.held_after(count); }
  void reserve(int64_t count) override {
    if (starved_) {
      throw Error(ErrorCode::out_of_memory, {.where = "test", .expected = {}, .got = "no memory", .advice = {}});
    }
    inner_.reserve(count);
  }
  using LayerCache::update;
  void update(const KVBlock& block, int64_t first, int64_t count) override {
    reserve(count);
    inner_.update(block, first, count);
    offset_ = inner_.offset();
  }
  bool can_resume_at(int64_t position) const noexcept override { return inner_.can_resume_at(position); }
  void truncate(int64_t position) override {
    inner_.truncate(position);
    offset_ = inner_.offset();
  }
  void restore(int64_t offset, const KVBlock& held) override {
    inner_.restore(offset, held);
    offset_ = inner_.offset();
  }

 private:
  const bool& starved_;
  FullKVCache inner_;
};

class FailingStep : public ::testing::Test {
 protected:
  FailingStep() {
    // The last layer: all others come before it, four of them rings.
    auto& caches = session_.sequence().caches;
    caches.back() = std::make_unique<StarvedCache>(caches.back()->layout(), starved_);
  }

  static std::vector<TokenId> tokens(int64_t count) {
    std::vector<TokenId> result;
    for (int64_t i = 0; i < count; ++i) result.push_back(static_cast<TokenId>(3 + (i * 37 + i * i * 5) % 300));
    return result;
  }

  /// Length, offsets and every byte held.
  static std::string state(Session& session) {
    std::string bytes = std::to_string(session.length());
    for (const auto& cache : session.sequence().caches) {
      bytes += "|" + std::to_string(cache->offset()) + "," + std::to_string(cache->bytes_held()) + ":";
      if (cache->offset() == 0) continue;
      const KVBlock held = copy_positions(*cache, cache->first_held());
      bytes.append(static_cast<const char*>(held.k().raw()), static_cast<size_t>(held.k().bytes()));
      bytes.append(static_cast<const char*>(held.v().raw()), static_cast<size_t>(held.v().bytes()));
    }
    return bytes;
  }

  template <class Call>
  void expect_refused(Call&& call, ErrorCode code) {
    const std::string before = state(session_);
    try {
      call();
      ADD_FAILURE() << "nothing was refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
    }
    EXPECT_EQ(state(session_), before);
  }

  static inline const std::shared_ptr<const Model> model_ =
      Model::load(std::filesystem::path(SLIPRING_SOURCE_DIR) / "tests/data/muse-glimmer");
  Session session_{model_, {.kv_dtype = DType::F16, .context = 0, .chunk = 512, .threads = 1}};
  bool starved_ = false;
};

TEST_F(FailingStep, WithoutMemoryForTheLastLayerNothingIsWritten) {
  const auto text = tokens(300);
  const std::span<const TokenId> all(text);
  session_.prefill(all.first(247));
  starved_ = true;
  expect_refused([&] { session_.prefill(all.subspan(247, 9)); }, ErrorCode::out_of_memory);
  expect_refused([&] { session_.decode(text[247]); }, ErrorCode::out_of_memory);
  expect_refused([&] { session_.verify(all.subspan(247, 12), [](const Step&) { return 11; }); },
                 ErrorCode::out_of_memory);
  starved_ = false;
  const auto logits = session_.prefill(all.subspan(247));
  Session cold(model_, {.kv_dtype = DType::F16, .context = 0, .chunk = 512, .threads = 1});
  const auto expected = cold.prefill(all);
  EXPECT_TRUE(std::equal(logits.begin(), logits.end(), expected.begin(), expected.end()));
  EXPECT_EQ(state(session_), state(cold));
}

TEST_F(FailingStep, MoreAcceptedThanVerifiedIsAnErrorInEveryBuild) {
  const auto text = tokens(60);
  const std::span<const TokenId> all(text);
  for (const int64_t length : {5, 14, 27}) {  // before the wrap, across it, after it
    session_.clear();
    session_.prefill(all.first(static_cast<size_t>(length)));
    for (const int64_t accepted : {int64_t{5}, int64_t{8}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
      expect_refused(
          [&] { session_.verify(all.subspan(static_cast<size_t>(length), 4), [&](const Step&) { return accepted; }); },
          ErrorCode::invalid_argument);
    }
    session_.verify(all.subspan(static_cast<size_t>(length), 4), [](const Step&) { return int64_t{0}; });
    EXPECT_EQ(session_.length(), length);
  }
}

TEST_F(FailingStep, AnIdOutsideTheVocabularyIsAnErrorOnEveryPath) {
  session_.prefill(tokens(20));
  for (const TokenId id : {-1, 320, std::numeric_limits<TokenId>::max()}) {
    const std::vector<TokenId> two{5, id};
    expect_refused([&] { session_.decode(id); }, ErrorCode::invalid_argument);
    expect_refused([&] { session_.prefill(two); }, ErrorCode::invalid_argument);
    expect_refused([&] { session_.verify(two, [](const Step&) { return int64_t{1}; }); }, ErrorCode::invalid_argument);
    expect_refused([&] { session_.score(two, [](int64_t, std::span<const float>) {}); }, ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace slipring::testing
