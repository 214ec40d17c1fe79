// What the export tests share: fixture models, caches and their bytes.
#pragma once

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <slipring/layer_cache.h>

#include "engine/sequence.h"
#include "models/decoder.h"
#include "models/trace_decoder.h"

namespace slipring::test {

inline std::filesystem::path data(const std::string& name) {
  return std::filesystem::path(SLIPRING_SOURCE_DIR) / "tests" / "data" / name;
}

inline ThreadPool& pool() {
  static ThreadPool pool(2);
  return pool;
}

inline std::shared_ptr<const Decoder> decoder(const std::string& name) {
  return load_decoder(*ModelFiles::open(data(name)), pool());
}

/// Every byte of keys and values that the caches hold, oldest position first, with the offsets.
inline std::vector<std::byte> cache_bytes(std::span<const std::unique_ptr<LayerCache>> caches) {
  std::vector<std::byte> bytes;
  for (const auto& cache : caches) {
    const auto add = [&](const void* from, int64_t count) {
      const auto* first = static_cast<const std::byte*>(from);
      bytes.insert(bytes.end(), first, first + count);
    };
    const int64_t offset = cache->offset();
    add(&offset, sizeof(offset));
    for (const KVRun& run : cache->held().runs) {
      add(run.k, run.count * cache->layout().bytes());
      add(run.v, run.count * cache->layout().bytes());
    }
  }
  return bytes;
}

/// Ids that are not all alike and stay inside the vocabulary.
inline std::vector<int32_t> tokens(int64_t count, int64_t vocab, uint32_t seed = 1) {
  std::vector<int32_t> ids;
  uint32_t state = seed * 2654435761U + 12345U;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    ids.push_back(static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab)));
  }
  return ids;
}

}  // namespace slipring::test
