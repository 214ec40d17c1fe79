#include "kernels/reference_attention.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

namespace slipring {
namespace {

/// One head of width 1 whose view is one run: enough to compute by hand.
struct Tiny {
  std::vector<float> k, v, q, out;
  KVView view;
  AttentionTask task;

  Tiny(std::vector<float> keys, std::vector<float> values, std::vector<float> queries, int64_t offset)
      : k(std::move(keys)), v(std::move(values)), q(std::move(queries)), out(q.size()) {
    view = {.dtype = DType::F32, .n_kv_heads = 1, .head_dim = 1, .runs = {}};
    view.runs.push_back({.k = k.data(), .v = v.data(), .first_position = 0, .count = static_cast<int64_t>(k.size())});
    task.q = q.data();
    task.out = out.data();
    task.offset = offset;
    task.query_len = static_cast<int64_t>(q.size());
    task.n_heads = 1;
    task.view = &view;
  }
  Tiny(const Tiny&) = delete;
  Tiny& operator=(const Tiny&) = delete;
};

TEST(ReferenceAttention, ZeroQueriesAverageExactlyTheWindow) {
  Tiny tiny({9, 9, 9, 9, 9, 9}, {0, 1, 2, 3, 4, 5}, {0, 0}, 4);
  tiny.task.rule = PositionRule::window(3);
  reference_attention(tiny.task);
  EXPECT_FLOAT_EQ(tiny.out[0], 3.0F);
  EXPECT_FLOAT_EQ(tiny.out[1], 4.0F);  // 3.5 would mean that the window counts four keys
}

TEST(ReferenceAttention, BothBoundsOfATwoSidedRule) {
  Tiny tiny({1, 1, 1, 1, 1}, {0, 1, 2, 4, 8}, {0}, 2);
  tiny.task.rule = {.left = 1, .right = 1};
  reference_attention(tiny.task);
  EXPECT_FLOAT_EQ(tiny.out[0], 7.0F / 3);
  tiny.task.rule = {.left = 0, .right = 2};
  reference_attention(tiny.task);
  EXPECT_FLOAT_EQ(tiny.out[0], 14.0F / 3);
}

TEST(ReferenceAttention, SoftmaxScaleSoftcapAndSink) {
  Tiny tiny({1, 3}, {10, 20}, {2}, 1);
  tiny.task.scale = 0.5F;
  const double e = std::exp(-2.0);  // scores 1 and 3
  EXPECT_NEAR(reference_attention_f64(tiny.task)[0], (10 * e + 20) / (e + 1), 1e-12);
  const float sink = 3;
  tiny.task.sinks = &sink;
  EXPECT_NEAR(reference_attention_f64(tiny.task)[0], (10 * e + 20) / (e + 2), 1e-12);
  tiny.task.sinks = nullptr;
  tiny.task.softcap = 2;
  const double a = 2 * std::tanh(0.5);
  const double b = 2 * std::tanh(1.5);
  EXPECT_NEAR(reference_attention_f64(tiny.task)[0],
              (10 * std::exp(a) + 20 * std::exp(b)) / (std::exp(a) + std::exp(b)), 1e-12);
}

TEST(ReferenceAttention, AQueryThatSeesNothingGivesZeros) {
  Tiny tiny({1}, {5}, {1}, 9);
  tiny.task.rule = PositionRule::window(2);
  tiny.out[0] = 7;
  reference_attention(tiny.task);
  EXPECT_EQ(tiny.out[0], 0.0F);
}

TEST(ReferenceAttention, HeadsShareTheirKVHeadAndHalvesAreDecoded) {
  const std::vector<uint16_t> k{0, 0};
  const std::vector<uint16_t> v{0x3C00, 0x4000};  // float16 1 and 2, one for each KV head
  KVView view{.dtype = DType::F16, .n_kv_heads = 2, .head_dim = 1, .runs = {}};
  view.runs.push_back({.k = k.data(), .v = v.data(), .first_position = 0, .count = 1});
  const std::vector<float> q(4);
  AttentionTask task;
  task.q = q.data();
  task.query_len = 1;
  task.n_heads = 4;
  task.view = &view;
  EXPECT_EQ(reference_attention_f64(task), (std::vector<double>{1, 1, 2, 2}));
}

}  // namespace
}  // namespace slipring
