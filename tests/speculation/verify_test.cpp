// `slipring verify` must pass on sound caches and find broken ones: the write-first bug, and a window short by one.
#include "engine/verify.h"

#include <cstring>
#include <gtest/gtest.h>

#include <slipring/full_kv_cache.h>
#include <slipring/ring_kv_cache.h>

#include "engine/state_bytes.h"

namespace slipring::testing {
namespace {

std::filesystem::path data() {
  return std::filesystem::path(SLIPRING_SOURCE_DIR) / "tests/data";
}

/// A ring that is broken in one of the ways that other engines were. Everything else is a sound ring's.
class BrokenRing final : public LayerCache {
 public:
  enum class Fault : uint8_t {
    write_first,  ///< a step of many tokens evicts before its own first queries have read
    short_by_one  ///< the oldest key of the window is lost
  };
  BrokenRing(Fault fault, int64_t window, KVLayout layout)
      : LayerCache(layout, "BrokenRing"), fault_(fault), window_(window), ring_(window, window, layout) {}

  bool is_ring() const noexcept override { return true; }
  int64_t first_held() const noexcept override { return ring_.first_held(); }
  int64_t room_before_wrap() const noexcept override { return ring_.room_before_wrap(); }
  int64_t bytes_held() const noexcept override { return ring_.bytes_held(); }
  KVView held() const override { return ring_.held(); }
  KVView fetch_and_concat(const KVBlock& block) const override {
    KVView view = LayerCache::fetch_and_concat(block);
    if (offset_ < window_) return view;
    // What a query finds in slots that were written too early: new keys in the place of old ones.
    const KVBlock sound = copy_positions(ring_, ring_.first_held());
    k_ = sound.k().clone();
    v_ = sound.v().clone();
    const bool first = fault_ == Fault::write_first;
    overwrite(k_, block.k(), first ? 0 : 1, first ? std::min(block.query_len(), window_) : 1);
    overwrite(v_, block.v(), first ? 0 : 1, first ? std::min(block.query_len(), window_) : 1);
    const KVRun own = view.runs.back();
    view.runs = {{.k = k_.raw(), .v = v_.raw(), .first_position = ring_.first_held(), .count = window_}, own};
    return view;
  }
  using LayerCache::update;
  void update(const KVBlock& block) override {
    ring_.update(block);
    offset_ = ring_.offset();
  }
  bool can_resume_at(int64_t position) const noexcept override { return ring_.can_resume_at(position); }
  void truncate(int64_t position) override {
    ring_.truncate(position);
    offset_ = ring_.offset();
  }
  void restore(int64_t offset, const KVBlock& held) override {
    ring_.restore(offset, held);
    offset_ = ring_.offset();
  }

 private:
  void overwrite(Tensor& held, const Tensor& block, int64_t first, int64_t count) const {
    std::memcpy(static_cast<std::byte*>(held.raw()) + first * layout_.bytes(), block.raw(),
                static_cast<size_t>(count * layout_.bytes()));
  }

  Fault fault_;
  int64_t window_;
  RingKVCache ring_;
  mutable Tensor k_, v_;  // of the last view given out
};

VerifyOptions broken(BrokenRing::Fault fault) {
  VerifyOptions options;
  options.threads = 1;
  options.make_caches = [fault](const std::vector<LayerSpec>& layers, DType kv_dtype) {
    Sequence sequence = make_sequence(layers, kv_dtype);
    for (size_t i = 0; i < layers.size(); ++i) {
      if (layers[i].kind == LayerKind::full) continue;
      sequence.caches[i] = std::make_unique<BrokenRing>(fault, layers[i].window, sequence.caches[i]->layout());
    }
    return sequence;
  };
  return options;
}

const VerifyCheck& named(const std::vector<VerifyCheck>& checks, const std::string& name) {
  for (const VerifyCheck& check : checks) {
    if (check.name == name) return check;
  }
  throw std::runtime_error("no check " + name);
}

TEST(Verify, PassesOnSoundCachesOfEveryType) {
  const auto model = Model::load(data() / "muse-glimmer");
  for (const DType kv : {DType::F16, DType::F32, DType::BF16}) {
    VerifyOptions options;
    options.threads = 1;
    options.kv_dtype = kv;
    options.drafter = data() / "muse-glimmer-assistant";
    const auto checks = verify_model(model, options);
    EXPECT_EQ(checks.size(), 6U);
    for (const VerifyCheck& check : checks) {
      EXPECT_TRUE(check.same) << check.name;
      EXPECT_EQ(check.largest, 0.0) << check.name;
      EXPECT_GE(check.cases, 48) << check.name;
    }
  }
}

TEST(Verify, FindsTheWriteFirstBug) {
  const auto checks = verify_model(Model::load(data() / "muse-glimmer"), broken(BrokenRing::Fault::write_first));
  for (const char* name : {"chunk sizes", "token by token", "drafts on and off", "ring against a full log"}) {
    EXPECT_FALSE(named(checks, name).same) << name;
    EXPECT_GT(named(checks, name).largest, 1e-3) << name;
  }
}

TEST(Verify, FindsAWindowThatIsShortByOne) {
  const auto checks = verify_model(Model::load(data() / "muse-glimmer"), broken(BrokenRing::Fault::short_by_one));
  EXPECT_FALSE(named(checks, "ring against a full log").same);
  EXPECT_FALSE(named(checks, "token by token").same);  // that path does not go through the broken function
}

TEST(Verify, AModelWithoutSlidingLayersHasNoRingToCompare) {
  ModelSpec spec;
  spec.context_length = 4096;
  spec.layers.push_back({.kind = LayerKind::full, .window = 0, .n_kv_heads = 1, .head_dim = 8, .rope_theta = 1e4});
  EXPECT_GE(verify_length(spec), 48);
  spec.layers.push_back({.kind = LayerKind::sliding, .window = 128, .n_kv_heads = 1, .head_dim = 8, .rope_theta = 1e4});
  EXPECT_GT(verify_length(spec), 3 * 128);
  spec.layers[1].window = 512;
  EXPECT_GT(verify_length(spec), 512);
  EXPECT_LT(verify_length(spec), 1024);
  spec.context_length = 100;
  EXPECT_EQ(verify_length(spec), 100);
}

TEST(Verify, StopsWhenTold) {
  VerifyOptions options;
  options.progress = [](std::string_view, int64_t, int64_t) { return false; };
  EXPECT_THROW(verify_model(Model::load(data() / "muse-glimmer"), options), std::exception);
}

}  // namespace
}  // namespace slipring::testing
