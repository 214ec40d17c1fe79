#include "test_drafts.h"

#include "engine/sequence.h"

namespace slipring::testing {
namespace {

std::string position_bytes(const LayerCache& cache, const KVRun& run, int64_t index) {
  const auto row = static_cast<size_t>(cache.layout().bytes());
  const auto at = static_cast<size_t>(index) * row;
  std::string bytes(static_cast<const char*>(run.k) + at, row);
  return bytes.append(static_cast<const char*>(run.v) + at, row);
}

}  // namespace

PlainLog::PlainLog(const std::shared_ptr<const Model>& model, std::span<const TokenId> tokens, DType kv)
    : bytes_(model->spec().layers.size()), layers_(model->spec().layers) {
  Session session(model, {.kv_dtype = kv, .context = 0, .chunk = 512, .threads = 1});
  for (const TokenId token : tokens) {
    session.decode(token);
    for (size_t layer = 0; layer < bytes_.size(); ++layer) {
      const LayerCache& cache = *session.sequence().caches[layer];
      const KVRun last = cache.held().runs.back();
      bytes_[layer].push_back(position_bytes(cache, last, last.count - 1));
    }
  }
}

std::string PlainLog::difference(Session& session) const {
  for (size_t layer = 0; layer < bytes_.size(); ++layer) {
    const LayerCache& cache = *session.sequence().caches[layer];
    const std::string place = "layer " + std::to_string(layer) + " at length " + std::to_string(session.length());
    if (cache.offset() != session.length()) return place + ": offset " + std::to_string(cache.offset());
    const int64_t window = layers_[layer].window;
    const int64_t oldest = window > 0 ? std::max<int64_t>(0, session.length() - window) : 0;
    const KVView view = cache.held();
    if (view.first_position() != oldest || view.end_position() != session.length()) return place + ": other positions";
    for (const KVRun& run : view.runs) {
      for (int64_t i = 0; i < run.count; ++i) {
        const auto position = static_cast<size_t>(run.first_position + i);
        if (position >= bytes_[layer].size()) return place + ": a position that plain decoding never wrote";
        if (position_bytes(cache, run, i) != bytes_[layer][position]) {
          return place + ": other bytes at position " + std::to_string(position);
        }
      }
    }
  }
  return {};
}

}  // namespace slipring::testing
