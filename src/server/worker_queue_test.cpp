#include "server/worker_queue.h"

#include <atomic>
#include <gtest/gtest.h>
#include <stdexcept>

namespace slipring::server {
namespace {

TEST(WorkerQueue, EveryTaskIsDoneWhateverOthersThrow) {
  std::atomic<int> done{0};
  {
    WorkerQueue queue(3);
    for (int i = 0; i < 20; ++i) {
      queue.enqueue([&done, i] {
        if (i % 2 == 0) throw std::runtime_error("no memory");
        ++done;
      });
    }
    queue.shutdown();
    EXPECT_EQ(done, 10);
  }  // ends once more
  EXPECT_EQ(done, 10);
}

}  // namespace
}  // namespace slipring::server
