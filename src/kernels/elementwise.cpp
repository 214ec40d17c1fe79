// The row-wise and element-wise kernels, once a target. See lanes-inl.h for why all targets give the same bits.
#include "kernels/elementwise.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise.cpp"
#include "kernels/foreach_lanes_target.h"
// foreach_lanes_target.h comes first: it includes this file once a target.
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

/// out[i] = function(x[i], y[i]) sixteen at a time; the remainder is padded with zeros.
template <class Function>
HWY_INLINE void ForEach(const float* x, const float* y, int64_t count, float* out, const Function& function) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) Store(function(Load(x + i), Load(y + i)), out + i);
  if (i < count) {
    StoreFirst(function(LoadFirst(x + i, count - i), LoadFirst(y + i, count - i)), count - i, out + i);
  }
}

/// Sum of term(x[i]) in 64 partial sums, element i into sum i % 64, which are then added in a fixed tree: the error is
/// that of cols / 64 additions. term(0) of the padding must not matter, so the remainder is padded with `padding`.
template <class Accumulate>
HWY_INLINE float SumOf(const float* x, int64_t cols, float padding, const Accumulate& accumulate) {
  constexpr int64_t kStep = 4 * kLanes;
  Lanes sum[4] = {Zero(), Zero(), Zero(), Zero()};
  int64_t i = 0;
  for (; i + kStep <= cols; i += kStep) {
    sum[0] = accumulate(Load(x + i), sum[0]);
    sum[1] = accumulate(Load(x + i + kLanes), sum[1]);
    sum[2] = accumulate(Load(x + i + 2 * kLanes), sum[2]);
    sum[3] = accumulate(Load(x + i + 3 * kLanes), sum[3]);
  }
  if (i < cols) {
    float rest[kStep];
    std::fill(std::copy(x + i, x + cols, rest), rest + kStep, padding);
    sum[0] = accumulate(Load(rest), sum[0]);
    sum[1] = accumulate(Load(rest + kLanes), sum[1]);
    sum[2] = accumulate(Load(rest + 2 * kLanes), sum[2]);
    sum[3] = accumulate(Load(rest + 3 * kLanes), sum[3]);
  }
  return SumOfLanes(Add(Add(sum[0], sum[2]), Add(sum[1], sum[3])));
}

HWY_INLINE float SumOfSquares(const float* x, int64_t cols) {
  return SumOf(x, cols, 0.0F, [](Lanes a, Lanes sum) { return Fma(a, a, sum); });
}

/// out = x * factor, and * weight where there is one.
HWY_INLINE void ScaleRow(const float* x, const float* weight, float factor, int64_t cols, float* out) {
  const Lanes f = Set(factor);
  if (weight == nullptr) {
    ForEach(x, x, cols, out, [f](Lanes a, Lanes) { return Mul(a, f); });
  } else {
    ForEach(x, weight, cols, out, [f](Lanes a, Lanes w) { return Mul(Mul(a, f), w); });
  }
}

void RmsNormRow(const float* x, const float* weight, float eps, int64_t cols, float* out) {
  const float mean = SumOfSquares(x, cols) / static_cast<float>(cols);
  ScaleRow(x, weight, 1.0F / std::sqrt(mean + eps), cols, out);
}

void AddRmsNormRow(const float* x, const float* delta, const float* weight, float eps, int64_t cols, float* sum,
                   float* out) {
  // The row of sums is still in the first-level cache when it is normed.
  ForEach(x, delta, cols, sum, [](Lanes a, Lanes b) { return Add(a, b); });
  RmsNormRow(sum, weight, eps, cols, out);
}

void LayerNormRow(const float* x, const float* weight, float eps, int64_t cols, float* out) {
  const float mean = SumOf(x, cols, 0.0F, [](Lanes a, Lanes sum) { return Add(a, sum); }) / static_cast<float>(cols);
  const Lanes m = Set(mean);
  const float squares = SumOf(x, cols, mean, [m](Lanes a, Lanes sum) {
    const Lanes distance = Sub(a, m);
    return Fma(distance, distance, sum);
  });
  const Lanes f = Set(1.0F / std::sqrt(squares / static_cast<float>(cols) + eps));
  if (weight == nullptr) {
    ForEach(x, x, cols, out, [&](Lanes a, Lanes) { return Mul(Sub(a, m), f); });
  } else {
    ForEach(x, weight, cols, out, [&](Lanes a, Lanes w) { return Mul(Mul(Sub(a, m), f), w); });
  }
}

/// One head: pairs (a, b) become (a cos - b sin, b cos + a sin), the second product rounded before it is added.
void RopeHead(float* x, const float* cos, const float* sin, int half, RopeLayout layout) {
  if (layout == RopeLayout::halves) {
    int i = 0;
    for (; i + kLanes <= half; i += kLanes) {
      const Lanes a = Load(x + i);
      const Lanes b = Load(x + half + i);
      const Lanes c = Load(cos + i);
      const Lanes s = Load(sin + i);
      Store(Fma(a, c, Sub(Zero(), Mul(b, s))), x + i);
      Store(Fma(b, c, Mul(a, s)), x + half + i);
    }
    for (; i < half; ++i) {
      const float a = x[i];
      const float b = x[half + i];
      x[i] = std::fma(a, cos[i], 0.0F - b * sin[i]);
      x[half + i] = std::fma(b, cos[i], a * sin[i]);
    }
    return;
  }
  for (int i = 0; i < half; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = std::fma(a, cos[i], 0.0F - b * sin[i]);
    x[2 * i + 1] = std::fma(b, cos[i], a * sin[i]);
  }
}

void GatedActivation(Activation activation, const float* gate, const float* up, int64_t count, float* out) {
  switch (activation) {
    case Activation::silu:
      ForEach(gate, up, count, out, [](Lanes g, Lanes u) { return Mul(Mul(g, Sigmoid(g)), u); });
      return;
    case Activation::gelu_tanh:
      // (1 + tanh z) / 2 = sigmoid(2 z), which does not cancel for negative z; z = sqrt(2 / pi) (g + 0.044715 g^3)
      ForEach(gate, up, count, out, [](Lanes g, Lanes u) {
        const Lanes inner = Fma(Mul(Mul(g, g), g), Set(0.044715F), g);
        return Mul(Mul(g, Sigmoid(Mul(inner, Set(1.5957691216F)))), u);
      });
      return;
    case Activation::gelu_erf:
      for (int64_t i = 0; i < count; ++i) {
        const double g = gate[i];
        out[i] = static_cast<float>(0.5 * g * std::erfc(-g * 0.70710678118654752)) * up[i];
      }
      return;
  }
}

void SigmoidGate(const float* x, const float* gate, int64_t count, float* out) {
  ForEach(x, gate, count, out, [](Lanes a, Lanes g) { return Mul(a, Sigmoid(g)); });
}

void AddAll(const float* a, const float* b, int64_t count, float* out) {
  ForEach(a, b, count, out, [](Lanes x, Lanes y) { return Add(x, y); });
}

void ScaleAll(const float* x, float factor, int64_t count, float* out) {
  ScaleRow(x, nullptr, factor, count, out);
}

void SoftcapAll(const float* x, float cap, int64_t count, float* out) {
  ForEach(x, x, count, out, [cap](Lanes a, Lanes) { return Softcap(a, cap); });
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipring {
namespace {

/// Elements that one thread gets through in the time that waking another takes.
constexpr int64_t kElementsWorthSharing = 16384;

/// Calls work(begin, end) for pieces of [0, count); on the caller alone where `cost` (elements) is small.
template <class Work>
void share(int64_t count, int64_t cost, int64_t grain, ThreadPool& pool, const Work& work) {
  const int64_t pieces = cost < kElementsWorthSharing ? 1 : std::min((count + grain - 1) / grain, 4L * pool.threads());
  if (pieces <= 1 || pool.threads() == 1) {
    work(int64_t{0}, count);
    return;
  }
  const int64_t size = ((count + pieces - 1) / pieces + grain - 1) / grain * grain;
  pool.parallel_for((count + size - 1) / size,
                    [&](int64_t i, int) { work(i * size, std::min(count, (i + 1) * size)); });
}

/// Pieces of whole lanes, so that an element's bits cannot depend on the cut (they do not anyway).
constexpr int64_t kGrain = 1024;

}  // namespace

HWY_EXPORT(RmsNormRow);
HWY_EXPORT(AddRmsNormRow);
HWY_EXPORT(LayerNormRow);
HWY_EXPORT(RopeHead);
HWY_EXPORT(GatedActivation);
HWY_EXPORT(SigmoidGate);
HWY_EXPORT(AddAll);
HWY_EXPORT(ScaleAll);
HWY_EXPORT(SoftcapAll);

void rms_norm(const float* x, const float* weight, float eps, int64_t rows, int64_t cols, float* out,
              ThreadPool& pool) {
  share(rows, rows * cols, 1, pool, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      HWY_DYNAMIC_DISPATCH(RmsNormRow)(x + r * cols, weight, eps, cols, out + r * cols);
    }
  });
}

void add_rms_norm(const float* x, const float* delta, const float* weight, float eps, int64_t rows, int64_t cols,
                  float* sum, float* out, ThreadPool& pool) {
  share(rows, rows * cols, 1, pool, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * cols;
      HWY_DYNAMIC_DISPATCH(AddRmsNormRow)(x + at, delta + at, weight, eps, cols, sum + at, out + at);
    }
  });
}

void layer_norm(const float* x, const float* weight, float eps, int64_t rows, int64_t cols, float* out,
                ThreadPool& pool) {
  share(rows, rows * cols, 1, pool, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      HWY_DYNAMIC_DISPATCH(LayerNormRow)(x + r * cols, weight, eps, cols, out + r * cols);
    }
  });
}

void rope(float* x, const float* cos, const float* sin, int64_t rows, int n_heads, int head_dim, int rotary_dim,
          RopeLayout layout, ThreadPool& pool) {
  const int half = rotary_dim / 2;
  share(rows, rows * n_heads * rotary_dim, 1, pool, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int head = 0; head < n_heads; ++head) {
        HWY_DYNAMIC_DISPATCH(RopeHead)
        (x + (r * n_heads + head) * head_dim, cos + r * half, sin + r * half, half, layout);
      }
    }
  });
}

void gated_activation(Activation activation, const float* gate, const float* up, int64_t count, float* out,
                      ThreadPool& pool) {
  share(count, count * 4, kGrain, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(GatedActivation)(activation, gate + begin, up + begin, end - begin, out + begin);
  });
}

void sigmoid_gate(const float* x, const float* gate, int64_t count, float* out, ThreadPool& pool) {
  share(count, count * 4, kGrain, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SigmoidGate)(x + begin, gate + begin, end - begin, out + begin);
  });
}

void add(const float* a, const float* b, int64_t count, float* out, ThreadPool& pool) {
  share(count, count, kGrain, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(AddAll)(a + begin, b + begin, end - begin, out + begin);
  });
}

void scale(const float* x, float factor, int64_t count, float* out, ThreadPool& pool) {
  share(count, count, kGrain, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ScaleAll)(x + begin, factor, end - begin, out + begin);
  });
}

void softcap(const float* x, float cap, int64_t count, float* out, ThreadPool& pool) {
  share(count, count * 4, kGrain, pool, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SoftcapAll)(x + begin, cap, end - begin, out + begin);
  });
}

}  // namespace slipring
#endif  // HWY_ONCE
