// What the tests of want of memory share: a session brought to a length with scratch memory still cold, its whole state
// as a string, and the loop over every allocation of a call.
#pragma once

#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <slipring/error.h>
#include <slipring/ring_kv_cache.h>
#include <slipring/session.h>
#include <slipring/snapshot.h>

#include "engine/sequence.h"
#include "engine/state_bytes.h"
#include "failing_allocation.h"

namespace slipring::testing {

/// Muse Glimmer with random weights: four rings of 16 slots and a full layer.
inline const std::shared_ptr<const Model>& small_model() {
  static const auto model = Model::load(std::filesystem::path(SLIPRING_SOURCE_DIR) / "tests/data/muse-glimmer");
  return model;
}

inline const std::vector<TokenId>& text() {
  static const std::vector<TokenId> tokens = [] {
    std::vector<TokenId> made;
    for (int64_t i = 0; i < 400; ++i) made.push_back(static_cast<TokenId>(3 + (i * 37 + i * i * 5) % 300));
    return made;
  }();
  return tokens;
}
inline std::span<const TokenId> part(int64_t first, int64_t count) {
  return std::span(text()).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

inline void append(std::string& bytes, const Tensor& tensor) {
  bytes.append(static_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.bytes()));
}

/// Tokens, offsets, memory held, every byte of every slot of the rings, and of the positions of other caches.
inline std::string state(Session& session) {
  std::string bytes;
  for (const TokenId token : session.tokens()) bytes += std::to_string(token) + " ";
  for (const auto& cache : session.sequence().caches) {
    bytes += "|" + std::to_string(cache->first_held()) + "-" + std::to_string(cache->offset()) + "," +
             std::to_string(cache->bytes_held()) + ":";
    if (const auto* ring = dynamic_cast<const RingKVCache*>(cache.get())) {
      append(bytes, ring->k_slots());
      append(bytes, ring->v_slots());
    } else if (cache->offset() > 0) {
      const KVBlock held = copy_positions(*cache, 0);
      append(bytes, held.k());
      append(bytes, held.v());
    }
  }
  return bytes;
}

inline std::string drafts_state(Session& session) {
  if (session.drafts() == nullptr) return {};
  const auto saved = session.drafts()->save();
  return {reinterpret_cast<const char*>(saved.data()), saved.size()};
}

/// Calls `call`; whether it found no memory. Anything else that it throws comes through.
template <class Call>
bool out_of_memory(Call&& call) {
  try {
    call();
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    return true;
  }
  return false;
}

/// Where sessions start from: the first `length` tokens of text().
class Start {
 public:
  explicit Start(int64_t length, MakeDrafts make_drafts = {}, int64_t chunk = 512)
      : make_drafts_(std::move(make_drafts)), chunk_(chunk) {
    const auto session = empty();
    if (length > 0) session->prefill(part(0, length));
    snapshot_ = Snapshot::take(*session);
  }
  /// A session that nobody has used: threads, scratch memory and all.
  std::unique_ptr<Session> operator()() const {
    auto session = empty();
    if (snapshot_->length() > 0) snapshot_->restore(*session);
    return session;
  }
  const Snapshot& snapshot() const { return *snapshot_; }

 private:
  std::unique_ptr<Session> empty() const {
    auto session = std::make_unique<Session>(
        small_model(), SessionOptions{.kv_dtype = DType::F16, .context = 0, .chunk = chunk_, .threads = 1});
    if (make_drafts_) session->attach_drafts(make_drafts_(session->worker()));
    return session;
  }

  MakeDrafts make_drafts_;
  int64_t chunk_;
  std::shared_ptr<const Snapshot> snapshot_;
};

/// Fails every allocation of `call` in turn, each in a session of its own. After each the session is as it was, and the
/// call made again gives what it gives when nothing fails: the same rows, the same state, the same logits next.
/// @param call  (Session&, std::vector<float>& rows): appends to rows, which have room, the logits that it was given
/// @return how many allocations there were
template <class Call>
int64_t fail_everywhere(const Start& start, Call&& call) {
  constexpr size_t kRoom = size_t{1} << 16;
  const auto undisturbed = start();
  std::vector<float> expected;
  expected.reserve(kRoom);
  call(*undisturbed, expected);
  const std::string after = state(*undisturbed);
  const auto row = undisturbed->decode(7);
  const std::vector<float> next(row.begin(), row.end());
  const std::string before = state(*start());
  const std::string drafts_before = drafts_state(*start());
  for (int64_t nth = 1;; ++nth) {
    const auto session = start();
    std::vector<float> rows;
    rows.reserve(kRoom);
    bool failed = false;
    bool refused = false;
    {
      const FailingAllocation failing(nth);
      refused = out_of_memory([&] { call(*session, rows); });
      failed = failing.failed();
    }
    if (refused) {
      EXPECT_EQ(state(*session), before) << "allocation " << nth;
      EXPECT_EQ(drafts_state(*session), drafts_before) << "allocation " << nth;
      rows.clear();
      call(*session, rows);
    }
    EXPECT_EQ(rows, expected) << "allocation " << nth;
    EXPECT_EQ(state(*session), after) << "allocation " << nth;
    const auto got = session->decode(7);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), next.begin(), next.end())) << "allocation " << nth;
    if (!failed || ::testing::Test::HasFailure()) return nth - 1;
  }
}

}  // namespace slipring::testing
