// What `slipring inspect` says that a text's keys and values take is what the caches of a session really take.
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include <slipring/model_spec.h>

#include "engine/sequence.h"

namespace slipring {
namespace {

constexpr int64_t kWindow = 2048;
constexpr int64_t kPositions = 131072;

/// Muse Glimmer 30B: 52 layers, every fourth one full; 2 KV heads of 128.
ModelSpec muse_glimmer_30b(int n_kv_heads, int head_dim) {
  ModelSpec spec;
  for (int layer = 0; layer < 52; ++layer) {
    const bool full = layer % 4 == 3;
    spec.layers.push_back({.kind = full ? LayerKind::full : LayerKind::sliding,
                           .window = full ? 0 : kWindow,
                           .n_kv_heads = n_kv_heads,
                           .head_dim = head_dim});
  }
  return spec;
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  statm >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(KVMemory, MuseGlimmer30BTakes183GigabytesAtItsFullContext) {
  const ModelSpec spec = muse_glimmer_30b(2, 128);
  constexpr int64_t a_position = 2 * 2 * 128 * 2;  // K and V, 2 heads of 128, 2 bytes each
  EXPECT_EQ(kv_bytes(spec, kPositions, DType::F16), (39 * kWindow + 13 * kPositions) * a_position);
  EXPECT_EQ(kv_bytes(spec, kPositions, DType::F16), 1'826'619'392);
  EXPECT_EQ(kv_bytes_without_rings(spec, kPositions, DType::F16), 52 * kPositions * a_position);
}

// The same layers, narrow enough for a test: 1 KV head of 16, so a sixteenth of the bytes.
TEST(KVMemory, CachesHoldWhatTheSpecSays) {
  const ModelSpec spec = muse_glimmer_30b(1, 16);
  const int64_t expected = kv_bytes(spec, kPositions, DType::F16);
  ASSERT_EQ(expected * 16, 1'826'619'392);
  const int64_t before = resident_bytes();
  const Sequence sequence = make_sequence(spec.layers, DType::F16);
  const Shape shape{kWindow, 1, 16};
  const KVBlock block = KVBlock::of(Tensor(DType::F16, shape), Tensor(DType::F16, shape));
  for (int64_t at = 0; at < kPositions; at += kWindow) {
    for (const auto& cache : sequence.caches) cache->update(block);
  }
  EXPECT_EQ(bytes_held(sequence), expected);
  const int64_t grown = resident_bytes() - before;
  EXPECT_GE(grown, expected * 9 / 10);  // memory that the process held before may be used again
  EXPECT_LE(grown, expected * 5 / 4);   // the address sanitizer's shadow takes an eighth
}

}  // namespace
}  // namespace slipring
