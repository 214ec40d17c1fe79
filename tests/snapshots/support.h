// What the tests of snapshots and of the prefix store share.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <slipring/session.h>

#include "engine/sequence.h"

namespace slipring::testing {

inline std::filesystem::path data() {
  return std::filesystem::path(SLIPRING_SOURCE_DIR) / "tests/data";
}

/// Muse Glimmer with random weights, window 16.
inline const std::shared_ptr<const Model>& small_model() {
  static const auto model = Model::load(data() / "muse-glimmer");
  return model;
}

inline std::vector<TokenId> some_tokens(int64_t count, int64_t salt = 0) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<TokenId>(3 + (i * 37 + i * i * 5 + salt * 11) % 300));
  return tokens;
}

inline std::vector<float> copy(std::span<const float> row) {
  return {row.begin(), row.end()};
}

/// Positions held and every byte of keys and values, of all layers: equal states give equal strings.
inline std::string cache_bytes(Session& session) {
  std::string bytes;
  for (const auto& cache : session.sequence().caches) {
    const KVView view = cache->held();
    const auto row = static_cast<size_t>(cache->layout().bytes());
    bytes += "|" + std::to_string(view.first_position()) + "-" + std::to_string(cache->offset()) + ":";
    // Keys and values interleaved by position, so that where a ring wraps does not show.
    for (const KVRun& run : view.runs) {
      for (size_t i = 0; i < static_cast<size_t>(run.count); ++i) {
        bytes.append(static_cast<const char*>(run.k) + i * row, row);
        bytes.append(static_cast<const char*>(run.v) + i * row, row);
      }
    }
  }
  return bytes;
}

}  // namespace slipring::testing
