// What the ring costs, in two questions. Does a sliding layer cost the same late in a text as early? And what does
// reading before writing (concat) cost a single token, for which writing first is legal too? Rounds alternate; medians.
//
//   ring_cost [MODEL [ROUNDS=15 [THREADS=2]]]      the second question needs a model with sliding layers
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <vector>

#include <slipring/error.h>
#include <slipring/ring_kv_cache.h>
#include <slipring/sampling.h>
#include <slipring/session.h>

#include "kernels/attention.h"

namespace slipring {
namespace {

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Geometry {
  const char* name;
  int layers;
  int64_t window;
  int n_heads;
  int n_kv_heads;
  int head_dim;
};

/// The sliding layers of a model, each with its ring, brought to a depth.
class SlidingLayers {
 public:
  SlidingLayers(const Geometry& geometry, int64_t depth, ThreadPool& pool) : geometry_(geometry), pool_(pool) {
    const KVLayout layout{.n_kv_heads = geometry.n_kv_heads, .head_dim = geometry.head_dim, .dtype = DType::F16};
    const Shape window{geometry.window, geometry.n_kv_heads, geometry.head_dim};
    const Shape one{1, geometry.n_kv_heads, geometry.head_dim};
    const KVBlock past = KVBlock::of(Tensor(DType::F16, window), Tensor(DType::F16, window));
    token_ = std::make_unique<KVBlock>(KVBlock::of(Tensor(DType::F16, one), Tensor(DType::F16, one)));
    for (int layer = 0; layer < geometry.layers; ++layer) {
      caches_.push_back(std::make_unique<RingKVCache>(geometry.window, geometry.window, layout));
      for (int64_t at = 0; at < depth; at += geometry.window) caches_.back()->update(past);
    }
    q_.resize(static_cast<size_t>(geometry.n_heads) * static_cast<size_t>(geometry.head_dim), 0.125F);
    out_.resize(q_.size());
  }

  /// Decodes one token: the write and the attention of every layer.
  void decode() {
    for (const auto& cache : caches_) {
      AttentionTask task;
      task.offset = cache->offset();
      const KVView view = cache->update_and_fetch(*token_);
      task.q = q_.data();
      task.out = out_.data();
      task.query_len = 1;
      task.n_heads = geometry_.n_heads;
      task.scale = 0.1F;
      task.rule = PositionRule::window(geometry_.window);
      task.view = &view;
      attention({&task, 1}, pool_);
    }
  }

 private:
  Geometry geometry_;
  ThreadPool& pool_;
  std::vector<std::unique_ptr<RingKVCache>> caches_;
  std::unique_ptr<KVBlock> token_;
  std::vector<float> q_;
  std::vector<float> out_;
};

void depths(const Geometry& geometry, int rounds, ThreadPool& pool) {
  constexpr int kTokens = 64;
  SlidingLayers early(geometry, 4 * geometry.window, pool);
  SlidingLayers late(geometry, 64 * geometry.window, pool);
  std::vector<double> at_4;
  std::vector<double> at_64;
  for (int round = -1; round < rounds; ++round) {
    for (const bool first : {true, false}) {
      SlidingLayers& layers = first ? early : late;
      const double seconds = seconds_of([&] {
        for (int i = 0; i < kTokens; ++i) layers.decode();
      });
      if (round >= 0) (first ? at_4 : at_64).push_back(seconds / kTokens * 1e6);
    }
  }
  fmt::print("| {} | {:.1f} | {:.1f} | {:.3f} |\n", geometry.name, median(at_4), median(at_64),
             median(at_64) / median(at_4));
}

void layouts(const std::string& path, int rounds, int threads) {
  const auto model = Model::load(path, {.threads = threads});
  int64_t window = 0;
  for (const LayerSpec& layer : model->spec().layers) window = std::max(window, layer.window);
  if (window == 0) {
    throw Error(ErrorCode::invalid_argument,
                {.where = path, .expected = "a model with sliding layers", .got = "full layers only", .advice = {}});
  }
  Session session(model, {.kv_dtype = DType::F16, .context = 0, .chunk = 512, .threads = threads});
  constexpr int kTokens = 32;
  const auto token = [&](int64_t i) {
    return static_cast<TokenId>(uniform_draw(5, static_cast<uint64_t>(i)) *
                                static_cast<double>(model->spec().vocab_size));
  };
  std::vector<TokenId> prompt;
  for (int64_t i = 0; i < window + window / 2; ++i) prompt.push_back(token(i));
  session.prefill(prompt);
  std::vector<double> write_first;
  std::vector<double> concat;
  std::vector<double> ratios;
  for (int round = -1; round < rounds; ++round) {
    double seconds[2] = {};
    for (int turn = 0; turn < 2; ++turn) {
      const bool first = (round + turn) % 2 == 0;  // who begins changes from round to round
      seconds[first ? 0 : 1] = seconds_of([&] {
        for (int i = 0; i < kTokens; ++i) {
          const TokenId next = token(session.length());
          if (first) {
            session.decode(next);
          } else {
            session.verify({&next, 1}, [](const Step&) { return 1; });
          }
        }
      });
    }
    if (round < 0) continue;
    write_first.push_back(seconds[0] / kTokens * 1e3);
    concat.push_back(seconds[1] / kTokens * 1e3);
    ratios.push_back(seconds[1] / seconds[0]);
  }
  fmt::print("| {} | {:.3f} | {:.3f} | {:.4f} |\n", model->path().filename().string(), median(write_first),
             median(concat), median(ratios));
}

int run(int argc, char** argv) {
  const int rounds = argc > 2 ? std::stoi(argv[2]) : 15;
  const int threads = argc > 3 ? std::stoi(argv[3]) : 2;
  {
    ThreadPool pool(threads);
    fmt::print("Sliding layers, one token: microseconds at a depth of 4 and 64 windows, {} threads\n\n", threads);
    fmt::print("| layers | 4 W | 64 W | ratio |\n| --- | ---: | ---: | ---: |\n");
    for (const Geometry& geometry : {Geometry{"Muse Glimmer 0.5B: 12 of window 1024", 12, 1024, 12, 2, 128},
                                     Geometry{"Gemma 3 270M: 15 of window 512", 15, 512, 4, 1, 256},
                                     Geometry{"Muse Glimmer 30B: 39 of window 2048", 39, 2048, 32, 2, 128}}) {
      depths(geometry, rounds, pool);
    }
  }
  if (argc < 2) return 0;
  fmt::print("\nDecode past the wrap: milliseconds a token, write-first and concat, {} threads\n\n", threads);
  fmt::print("| model | write-first | concat | ratio |\n| --- | ---: | ---: | ---: |\n");
  layouts(argv[1], rounds, threads);
  return 0;
}

}  // namespace
}  // namespace slipring

int main(int argc, char** argv) {
  try {
    return slipring::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "ring_cost: {}\n", error.what());
    return 1;
  }
}
