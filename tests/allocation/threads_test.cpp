// Tasks of the thread pool may not throw, so the threads that help with a step must never ask for memory.
#include <slipring/session.h>

#include "kernels/packed_matrix.h"
#include "support.h"

namespace slipring::testing {
namespace {

TEST(HelpingThreads, AllocateNothing) {
  for (const char* path : {"tests/data/muse-glimmer", "models/glimmer-tiny", "tests/data/gpt-oss"}) {
    const auto folder = std::filesystem::path(SLIPRING_SOURCE_DIR) / path;
    if (!std::filesystem::exists(folder / "config.json")) continue;
    const auto model = Model::load(folder);
    std::vector<TokenId> ids = text();
    for (TokenId& id : ids) id %= 250;
    for (const int64_t chunk : {1, 16, 100}) {
      Session session(model, {.kv_dtype = DType::F16, .context = 0, .chunk = chunk, .threads = 4});
      const FailingAllocation counting(0, FailingAllocation::Of::other_threads);
      session.prefill(std::span(ids).first(120));
      for (int64_t i = 120; i < 140; ++i) session.decode(ids[static_cast<size_t>(i)]);
      EXPECT_EQ(counting.seen(), 0) << path << ", chunk " << chunk;
    }
  }
}

TEST(HelpingThreads, AllocateNothingForFineActivations) {
  constexpr int64_t kRows = 200;
  constexpr int64_t kCols = 512;
  std::vector<float> values(static_cast<size_t>(kRows * kCols));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 91) - 45.0F;
  ThreadPool pool(4);
  for (int round = 0; round < 20; ++round) {
    Activations x(values.data(), kRows, kCols);
    const FailingAllocation counting(0, FailingAllocation::Of::other_threads);
    x.residual(pool);
    EXPECT_EQ(counting.seen(), 0);
  }
}

}  // namespace
}  // namespace slipring::testing
