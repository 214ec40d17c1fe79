// Every refusal throws the typed error, names its numbers, and leaves each byte of the cache as it was.
#include <functional>
#include <gtest/gtest.h>

#include <slipring/error.h>
#include <slipring/full_kv_cache.h>
#include <slipring/masks.h>
#include <slipring/ring_kv_cache.h>

#include "support.h"

namespace slipring::test {
namespace {

/// All that can be seen of a cache.
struct Everything {
  std::vector<std::byte> bytes;
  int64_t offset;
  int64_t first_held;
  int64_t bytes_held;

  explicit Everything(const LayerCache& cache)
      : offset(cache.offset()), first_held(cache.first_held()), bytes_held(cache.bytes_held()) {
    for (const KVRun& run : cache.held().runs) append(run, cache.layout().bytes());
    if (const auto* ring = dynamic_cast<const RingKVCache*>(&cache)) {
      bytes.insert(bytes.end(), ring->k_slots().span().begin(), ring->k_slots().span().end());
      bytes.insert(bytes.end(), ring->v_slots().span().begin(), ring->v_slots().span().end());
    }
  }
  void append(const KVRun& run, int64_t row) {
    const auto size = static_cast<size_t>(run.count * row);
    const auto* k = static_cast<const std::byte*>(run.k);
    const auto* v = static_cast<const std::byte*>(run.v);
    bytes.insert(bytes.end(), k, k + size);
    bytes.insert(bytes.end(), v, v + size);
  }
  bool operator==(const Everything&) const = default;
};

/// The call throws `code` with every one of `words` in its message.
void expect_refusal(const std::function<void()>& call, ErrorCode code, const std::vector<std::string>& words) {
  try {
    call();
    ADD_FAILURE() << "nothing was refused; expected " << to_string(code);
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    for (const std::string& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word << " is not in: " << error.what();
    }
  }
}

KVBlock zeros(int64_t query_len, int heads, int dim, DType dtype) {
  return KVBlock::of(Tensor(dtype, {query_len, heads, dim}), Tensor(dtype, {query_len, heads, dim}));
}

TEST(Refusals, LeaveARingAsItWas) {
  const Stream stream(60, 31);
  RingKVCache cache(8, 6, kLayout);
  while (cache.offset() < 21) cache.update(stream.block(cache.offset(), 1));
  const Everything before(cache);
  const KVBlock four = stream.block(21, 4);
  const auto refused = [&](const std::function<void()>& call, ErrorCode code, const std::vector<std::string>& words) {
    expect_refusal(call, code, words);
    EXPECT_EQ(Everything(cache), before);
  };
  refused([&] { cache.update(four); }, ErrorCode::ring_write_wraps, {"offset 21", "query_len 4", "capacity 8"});
  refused([&] { cache.update(stream.block(21, 9)); }, ErrorCode::ring_write_wraps, {"query_len 9"});
  refused([&] { cache.update_and_fetch(stream.block(21, 2)); }, ErrorCode::write_first_needs_single_token,
          {"query_len 2"});
  refused([&] { cache.update_and_fetch(four); }, ErrorCode::write_first_needs_single_token, {"query_len 4"});
  for (const auto& [heads, dim] : {std::pair{kKVHeads + 1, kDim}, std::pair{kKVHeads, kDim + 4}}) {
    const KVBlock wrong = zeros(1, heads, dim, DType::F32);
    const std::vector<std::string> words{std::to_string(heads) + ", " + std::to_string(dim), "2, 4"};
    refused([&] { cache.update(wrong); }, ErrorCode::shape_mismatch, words);
    refused([&] { cache.fetch_and_concat(wrong); }, ErrorCode::shape_mismatch, words);
    refused([&] { cache.update_and_fetch(wrong); }, ErrorCode::shape_mismatch, words);
    refused([&] { cache.commit(wrong, 1); }, ErrorCode::shape_mismatch, words);
    refused([&] { cache.restore(1, wrong); }, ErrorCode::shape_mismatch, words);
  }
  const KVBlock half = zeros(1, kKVHeads, kDim, DType::F16);
  refused([&] { cache.update(half); }, ErrorCode::dtype_mismatch, {"F16", "F32"});
  refused([&] { cache.fetch_and_concat(half); }, ErrorCode::dtype_mismatch, {"F16", "F32"});
  refused([&] { cache.update_and_fetch(half); }, ErrorCode::dtype_mismatch, {"F16", "F32"});
  refused([&] { cache.commit(four, 5); }, ErrorCode::invalid_argument, {"0 to 4", "5"});
  refused([&] { cache.commit(four, -1); }, ErrorCode::invalid_argument, {"-1"});
  refused([&] { cache.update(four, 2, 3); }, ErrorCode::invalid_argument, {"3 positions from 2"});
  refused([&] { cache.truncate(17); }, ErrorCode::invalid_argument, {"17", "13 to 20"});
  refused([&] { cache.truncate(22); }, ErrorCode::invalid_argument, {"22"});
  refused([&] { cache.truncate(-1); }, ErrorCode::invalid_argument, {"-1"});
  refused([&] { cache.restore(3, four); }, ErrorCode::invalid_argument, {"4 positions", "offset 3"});
  refused([&] { cache.restore(30, four); }, ErrorCode::invalid_argument, {"4 positions", "window 6"});
  const KVBlock own = KVBlock::of(cache.k_slots(), cache.v_slots());
  refused([&] { cache.restore(8, own); }, ErrorCode::invalid_argument, {"own slots"});
}

TEST(Refusals, LeaveAFullCacheAsItWas) {
  const Stream stream(300, 32);
  FullKVCache cache(kLayout);
  cache.update(stream.block(0, 300));
  const Everything before(cache);
  const auto refused = [&](const std::function<void()>& call, ErrorCode code) {
    expect_refusal(call, code, {});
    EXPECT_EQ(Everything(cache), before);
  };
  refused([&] { cache.update(zeros(1, kKVHeads, kDim, DType::BF16)); }, ErrorCode::dtype_mismatch);
  refused([&] { cache.update(zeros(1, kKVHeads, 8, DType::F32)); }, ErrorCode::shape_mismatch);
  refused([&] { cache.truncate(301); }, ErrorCode::invalid_argument);
  refused([&] { cache.restore(5, stream.block(0, 4)); }, ErrorCode::invalid_argument);
  EXPECT_NO_THROW(cache.update_and_fetch(zeros(3, kKVHeads, kDim, DType::F32))) << "no ring, so nothing holds it back";
}

TEST(Refusals, OfACacheThatCannotBe) {
  const auto make = [](int64_t capacity, int64_t window, KVLayout layout) {
    return [=] { RingKVCache cache(capacity, window, layout); };
  };
  expect_refusal(make(0, 0, kLayout), ErrorCode::invalid_argument, {"capacity 0"});
  expect_refusal(make(0, 1, kLayout), ErrorCode::invalid_argument, {"capacity 0", "window 1"});
  expect_refusal(make(8, 0, kLayout), ErrorCode::invalid_argument, {"window 0"});
  expect_refusal(make(8, -3, kLayout), ErrorCode::invalid_argument, {"window -3"});
  expect_refusal(make(8, 9, kLayout), ErrorCode::invalid_argument, {"capacity 8", "window 9"});
  expect_refusal(make(8, 8, {.n_kv_heads = 0, .head_dim = 4}), ErrorCode::invalid_argument, {"n_kv_heads 0"});
  expect_refusal(make(8, 8, {.n_kv_heads = 1, .head_dim = -4}), ErrorCode::invalid_argument, {"head_dim -4"});
  expect_refusal(make(8, 8, {.n_kv_heads = 1, .head_dim = 32, .dtype = DType::Q8_0}), ErrorCode::dtype_mismatch,
                 {"Q8_0"});
  expect_refusal([] { FullKVCache({.n_kv_heads = 0, .head_dim = 4}); }, ErrorCode::invalid_argument, {});
}

TEST(Refusals, OfBlocksAndMasks) {
  const Tensor k(DType::F32, {2, 2, 4});
  const auto round = [](const Tensor& a, const Tensor& b, DType dtype) { return [=] { KVBlock::round(a, b, dtype); }; };
  expect_refusal(round(k, Tensor(DType::F32, {2, 1, 4}), DType::F32), ErrorCode::shape_mismatch,
                 {"[2, 2, 4]", "[2, 1, 4]"});
  expect_refusal(round(Tensor(DType::F32, {4, 4}), Tensor(DType::F32, {4, 4}), DType::F32), ErrorCode::shape_mismatch,
                 {"[4, 4]"});
  expect_refusal(round(Tensor(DType::F32, {0, 2, 4}), Tensor(DType::F32, {0, 2, 4}), DType::F32),
                 ErrorCode::shape_mismatch, {"[0, 2, 4]"});
  expect_refusal(round(k, Tensor(DType::F16, {2, 2, 4}), DType::F16), ErrorCode::dtype_mismatch, {"F16"});
  expect_refusal(round(k, k, DType::I8), ErrorCode::dtype_mismatch, {"I8"});
  expect_refusal([&] { KVBlock::of(k, Tensor(DType::F16, {2, 2, 4})); }, ErrorCode::dtype_mismatch, {"F32", "F16"});
  expect_refusal([] { concat_window_causal_mask(-1, 1, 8, 8); }, ErrorCode::invalid_argument, {"offset -1"});
  expect_refusal([] { ring_window_causal_mask(0, 0, 8, 8); }, ErrorCode::invalid_argument, {"query_len 0"});
  expect_refusal([] { ring_window_causal_mask(0, 1, 8, 9); }, ErrorCode::invalid_argument, {"window 9"});
}

}  // namespace
}  // namespace slipring::test
