#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <vector>

#include "kernels/reference_attention.h"
#include "kernels/targets.h"
#include "tensor/half.h"

namespace slipring {
namespace {

/// Keys and values of positions [0, end) in one dtype, and views of them cut in various ways.
struct History {
  DType dtype;
  int n_kv_heads;
  int head_dim;
  int64_t end;
  std::vector<float> k, v;  ///< already rounded to dtype
  /// Storage of the runs of the views made so far.
  mutable std::vector<std::unique_ptr<std::vector<std::byte>>> storage;

  History(DType type, int heads, int dim, int64_t positions, std::mt19937& random)
      : dtype(type), n_kv_heads(heads), head_dim(dim), end(positions) {
    std::normal_distribution<float> normal;
    for (std::vector<float>* values : {&k, &v}) {
      values->resize(static_cast<size_t>(end * heads * dim));
      for (float& x : *values) x = rounded(normal(random));
    }
  }

  float rounded(float x) const {
    if (dtype == DType::F16) return f32_from_f16(f16_from_f32(x));
    if (dtype == DType::BF16) return f32_from_bf16(bf16_from_f32(x));
    return x;
  }

  int64_t row() const { return static_cast<int64_t>(n_kv_heads) * head_dim; }

  /// Positions [begin, end) of `values` in a block of their own, exactly as large, so that a sanitizer sees overreads.
  const std::byte* block(const std::vector<float>& values, int64_t begin, int64_t stop) const {
    const int64_t element = bytes_of(dtype, 1);
    auto bytes = std::make_unique<std::vector<std::byte>>(static_cast<size_t>((stop - begin) * row() * element));
    for (int64_t i = 0; i < (stop - begin) * row(); ++i) {
      const float x = values[static_cast<size_t>(begin * row() + i)];
      if (dtype == DType::F32) {
        std::memcpy(bytes->data() + i * element, &x, sizeof(x));
      } else {
        const uint16_t half = dtype == DType::F16 ? f16_from_f32(x) : bf16_from_f32(x);
        std::memcpy(bytes->data() + i * element, &half, sizeof(half));
      }
    }
    storage.push_back(std::move(bytes));
    return storage.back()->data();
  }

  /// A view of [cuts.front(), cuts.back()) with a run between each two neighbouring cuts.
  KVView view(const std::vector<int64_t>& cuts) const {
    KVView out{dtype, n_kv_heads, head_dim, {}};
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      if (cuts[i] == cuts[i + 1]) continue;
      out.runs.push_back(
          {block(k, cuts[i], cuts[i + 1]), block(v, cuts[i], cuts[i + 1]), cuts[i], cuts[i + 1] - cuts[i]});
    }
    return out;
  }
};

struct Setting {
  int n_heads;
  float scale = 0.25F;
  float softcap = 0.0F;
  PositionRule rule;
  std::vector<float> sinks;
};

std::vector<float> random_values(size_t count, std::mt19937& random, float size = 1.0F) {
  std::normal_distribution<float> normal(0.0F, size);
  std::vector<float> out(count);
  for (float& x : out) x = normal(random);
  return out;
}

AttentionTask task_of(const Setting& setting, const KVView& view, const float* q, float* out, int64_t offset,
                      int64_t query_len) {
  AttentionTask task;
  task.q = q;
  task.out = out;
  task.offset = offset;
  task.query_len = query_len;
  task.n_heads = setting.n_heads;
  task.scale = setting.scale;
  task.softcap = setting.softcap;
  task.sinks = setting.sinks.empty() ? nullptr : setting.sinks.data();
  task.rule = setting.rule;
  task.view = &view;
  return task;
}

std::vector<float> attend(const Setting& setting, const KVView& view, const std::vector<float>& q, int64_t offset,
                          int threads) {
  const int64_t row = static_cast<int64_t>(setting.n_heads) * view.head_dim;
  std::vector<float> out(q.size(), -1.0F);
  ThreadPool pool(threads);
  const AttentionTask task = task_of(setting, view, q.data(), out.data(), offset, static_cast<int64_t>(q.size()) / row);
  attention({&task, 1}, pool);
  return out;
}

std::vector<double> reference(const Setting& setting, const KVView& view, const std::vector<float>& q, int64_t offset) {
  const int64_t row = static_cast<int64_t>(setting.n_heads) * view.head_dim;
  return reference_attention_f64(
      task_of(setting, view, q.data(), nullptr, offset, static_cast<int64_t>(q.size()) / row));
}

double worst_error(const std::vector<float>& got, const std::vector<double>& expected) {
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::fabs(got[i] - expected[i]));
  return worst;
}

/// Shapes that differ in everything: groups, odd head sizes, windows, look-ahead, softcap, sinks, dtypes.
struct Case {
  DType dtype;
  int n_heads, n_kv_heads, head_dim;
  int64_t positions;
  PositionRule rule;
  float softcap;
  bool sinks;
};

std::vector<Case> cases() {
  const PositionRule causal = PositionRule::causal();
  return {
      {DType::F16, 6, 2, 64, 700, causal, 0, false},
      {DType::F16, 12, 2, 128, 530, PositionRule::window(200), 0, false},
      {DType::F32, 4, 1, 256, 300, PositionRule::window(64), 0, false},
      {DType::BF16, 8, 8, 16, 600, causal, 30.0F, false},
      {DType::F16, 9, 3, 64, 520, causal, 0, false},
      {DType::BF16, 8, 1, 80, 270, PositionRule::window(256), 0, true},
      {DType::F32, 3, 3, 5, 400, PositionRule::window(130), 5.0F, true},
      {DType::F16, 2, 1, 33, 290, PositionRule{40, 9}, 0, false},
      {DType::F16, 7, 1, 96, 257, PositionRule::window(1), 0, true},
      {DType::F32, 16, 1, 32, 300, PositionRule{PositionRule::kEverything, 1000}, 0, false},
  };
}

class AttentionCase : public testing::TestWithParam<size_t> {
 protected:
  AttentionCase() {
    setting.n_heads = shape.n_heads;
    setting.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
    setting.softcap = shape.softcap;
    setting.rule = shape.rule;
    if (shape.sinks) setting.sinks = random_values(static_cast<size_t>(shape.n_heads), random);
    q = random_values(static_cast<size_t>(query_len * row), random, 2.0F);
    whole = history.view({0, history.end});
  }

  std::vector<float> queries(int64_t begin, int64_t end) const {
    return {q.begin() + begin * row, q.begin() + end * row};
  }

  Case shape = cases()[GetParam()];
  std::mt19937 random{static_cast<unsigned>(GetParam() + 1)};
  History history{shape.dtype, shape.n_kv_heads, shape.head_dim, shape.positions, random};
  Setting setting{};
  int64_t query_len = 70;
  int64_t row = static_cast<int64_t>(shape.n_heads) * shape.head_dim;
  int64_t offset = shape.positions - query_len;
  std::vector<float> q;
  KVView whole;
};

TEST_P(AttentionCase, AgreesWithTheDefinitionInDouble) {
  EXPECT_LT(worst_error(attend(setting, whole, q, offset, 2), reference(setting, whole, q, offset)), 5e-6);
}

TEST_P(AttentionCase, AQueryGivesTheSameBitsInAnyChunk) {
  const std::vector<float> all = attend(setting, whole, q, offset, 1);
  for (const int64_t chunk : {1, 2, 3, 17, 40}) {
    std::vector<float> joined;
    for (int64_t begin = 0; begin < query_len; begin += chunk) {
      const int64_t end = std::min(query_len, begin + chunk);
      // Only what these queries may see exists yet, and nothing before it any more.
      const int64_t first = setting.rule.first(offset + begin);
      const KVView view = history.view({first, setting.rule.end(offset + end - 1, history.end)});
      const auto part = attend(setting, view, queries(begin, end), offset + begin, 2);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(joined == all) << "chunks of " << chunk;
  }
}

TEST_P(AttentionCase, RunsThreadsAndTargetsDoNotMatter) {
  const std::vector<float> expected = attend(setting, whole, q, offset, 1);
  std::vector<std::vector<int64_t>> cuts = {{0, 1, 2, 3, history.end}, {0, offset, history.end}};
  std::uniform_int_distribution<int64_t> anywhere(0, history.end);
  for (int i = 0; i < 3; ++i) {
    std::vector<int64_t> cut = {0, anywhere(random), anywhere(random), history.end};
    std::sort(cut.begin(), cut.end());
    cuts.push_back(cut);
  }
  std::vector<int64_t> pages;
  for (int64_t p = 0; p < history.end; p += 256) pages.push_back(p);
  pages.push_back(history.end);
  cuts.push_back(pages);
  for (const auto& cut : cuts) {
    EXPECT_TRUE(attend(setting, history.view(cut), q, offset, 2) == expected) << testing::PrintToString(cut);
  }
  for (const int threads : {2, 3}) EXPECT_TRUE(attend(setting, whole, q, offset, threads) == expected) << threads;
  const auto last_alone = attend(setting, whole, queries(query_len - 1, query_len), history.end - 1, 3);
  EXPECT_TRUE(std::equal(last_alone.begin(), last_alone.end(), expected.end() - row));
  for (const std::string& target : available_targets()) {
    use_target(target);
    EXPECT_TRUE(attend(setting, whole, q, offset, 2) == expected) << target;
    EXPECT_TRUE(attend(setting, whole, queries(query_len - 1, query_len), history.end - 1, 2) == last_alone) << target;
  }
  use_target("");
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionCase, testing::Range(size_t{0}, cases().size()));

TEST(Attention, SequencesOfABatchDoNotMeet) {
  std::mt19937 random(7);
  const History a(DType::F16, 2, 64, 600, random);
  const History b(DType::F16, 2, 64, 40, random);
  const KVView view_a = a.view({0, 600});
  const KVView view_b = b.view({0, 40});
  const Setting full{.n_heads = 4, .rule = {}, .sinks = {}};
  const Setting sliding{.n_heads = 4, .rule = PositionRule::window(16), .sinks = {}};
  const auto q_a = random_values(4 * 64, random);
  const auto q_b = random_values(40 * 4 * 64, random);
  std::vector<float> out_a(q_a.size());
  std::vector<float> out_b(q_b.size());
  const std::vector<AttentionTask> tasks = {task_of(full, view_a, q_a.data(), out_a.data(), 599, 1),
                                            task_of(sliding, view_b, q_b.data(), out_b.data(), 0, 40)};
  ThreadPool pool(2);
  attention(tasks, pool);
  EXPECT_TRUE(out_a == attend(full, view_a, q_a, 599, 1));
  EXPECT_TRUE(out_b == attend(sliding, view_b, q_b, 0, 1));
}

TEST(Attention, AQueryThatSeesNothingGivesZeros) {
  const KVView empty{DType::F32, 1, 8, {}};
  const Setting setting{.n_heads = 2, .rule = {}, .sinks = {1.0F, 2.0F}};
  EXPECT_EQ(attend(setting, empty, std::vector<float>(16, 1.0F), 0, 2), std::vector<float>(16, 0.0F));
}

TEST(Attention, KeysOutsideTheWindowMayHoldAnything) {
  std::mt19937 random(3);
  History history(DType::F16, 1, 32, 300, random);
  const Setting setting{.n_heads = 2, .rule = PositionRule::window(20), .sinks = {}};
  const auto q = random_values(30 * 2 * 32, random);
  const auto clean = attend(setting, history.view({0, 300}), q, 270, 1);
  // The first 20 of the 30 queries see position 270; from the 21st on it is out of the window.
  std::fill_n(history.k.begin() + 270 * 32, 32, NAN);
  std::fill_n(history.v.begin() + 270 * 32, 32, INFINITY);
  const auto dirty = attend(setting, history.view({0, 300}), q, 270, 1);
  EXPECT_TRUE(std::equal(clean.begin() + 20 * 64, clean.end(), dirty.begin() + 20 * 64));
  EXPECT_TRUE(std::isnan(dirty[0]));
}

}  // namespace
}  // namespace slipring
