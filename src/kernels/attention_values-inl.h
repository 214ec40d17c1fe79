// Sums of weighted values: lanes = head_dim, keys in ascending order, one chain of multiply-adds an element. However a
// span of keys is cut between calls, the chain and so the bits stay.
#if defined(SLIPRING_KERNELS_ATTENTION_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPRING_KERNELS_ATTENTION_VALUES_INL_H_
#undef SLIPRING_KERNELS_ATTENTION_VALUES_INL_H_
#else
#define SLIPRING_KERNELS_ATTENTION_VALUES_INL_H_
#endif

#include "kernels/attention_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

// Register blocks: rows times steps of sixteen elements.
#if HWY_TARGET == HWY_AVX3
constexpr int kValueRows = 6, kValueSteps = 4;
#elif HWY_TARGET == HWY_AVX2
constexpr int kValueRows = 6, kValueSteps = 1;
#else
constexpr int kValueRows = 1, kValueSteps = 1;
#endif
/// Keys at a time: their values stay in the first-level cache while all rows use them.
constexpr int64_t kValueKeys = 32;
static_assert(kValueKeys <= kMostValueKeys);

/// kRows rows, kSteps steps from element `at` on. `tail`: elements of the only step where it is not a whole one, else
/// 0.
template <class T, int kRows, int kSteps>
HWY_INLINE void ValueBlock(const float* weights, Rows<T> values, int64_t at, int64_t tail, int64_t lo, int64_t hi,
                           RowsAhead ahead, float* acc, int64_t acc_stride) {
  Lanes sums[kRows][kSteps];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int step = 0; step < kSteps; ++step) sums[row][step] = Load(acc + row * acc_stride + step * kLanes);
  }
  const auto add = [&](int64_t k, const Lanes* value) HWY_ATTR {
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const Lanes weight = Set(weights[row * kScoreStride + k]);
#pragma GCC unroll 8
      for (int step = 0; step < kSteps; ++step) sums[row][step] = Fma(weight, value[step], sums[row][step]);
    }
  };
  if (tail == 0) {
    for (int64_t k = lo; k < hi; ++k) {
      ahead.Ask(k);
      const T* from = values[k] + at;
      Lanes value[kSteps];
#pragma GCC unroll 8
      for (int step = 0; step < kSteps; ++step) value[step] = Load(from + step * kLanes);
      add(k, value);
    }
  } else {
    for (int64_t k = lo; k < hi; ++k) {
      ahead.Ask(k);
      Lanes value[kSteps];
      value[0] = LoadFirst(values[k] + at, tail);
      for (int step = 1; step < kSteps; ++step) value[step] = Zero();
      add(k, value);
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int step = 0; step < kSteps; ++step) Store(sums[row][step], acc + row * acc_stride + step * kLanes);
  }
}

/// acc[row] += sum over k in [lo, hi) of weights[row][k] * value[k]. values[k] are rows of `head_dim` elements; with
/// value k at hand, row k of `ahead` is asked for.
template <class T>
void AddValues(const float* weights, int64_t rows, int head_dim, Rows<T> values, int64_t lo, int64_t hi,
               RowsAhead ahead, float* acc, int64_t acc_stride) {
  for (int64_t begin = lo; begin < hi; begin += kValueKeys) {
    const int64_t end = std::min(hi, begin + kValueKeys);
    ForRowBlocks<kValueRows>(rows, [&](int64_t row, auto block) HWY_ATTR {
      constexpr int kRows = block.value;
      const float* w = weights + row * kScoreStride;
      float* sums = acc + row * acc_stride;
      int64_t at = 0;
      const auto ask = [&]() { return row == 0 && at == 0 ? ahead : RowsAhead{}; };  // once a row
      for (; at + kValueSteps * kLanes <= head_dim; at += kValueSteps * kLanes) {
        ValueBlock<T, kRows, kValueSteps>(w, values, at, 0, begin, end, ask(), sums + at, acc_stride);
      }
      if constexpr (kValueSteps > 1) {
        for (; at + kLanes <= head_dim; at += kLanes) {
          ValueBlock<T, kRows, 1>(w, values, at, 0, begin, end, ask(), sums + at, acc_stride);
        }
      }
      if (at < head_dim)
        ValueBlock<T, kRows, 1>(w, values, at, head_dim - at, begin, end, ask(), sums + at, acc_stride);
    });
  }
}

/// The same for many rows: kValueKeys values at a time are converted, into `converted` [kValueKeys, acc_stride], for
/// all of them.
template <class T>
void AddValuesOfManyRows(const float* weights, int64_t rows, int head_dim, Rows<T> values, int64_t lo, int64_t hi,
                         float* acc, int64_t acc_stride, float* converted) {
  const void* in_place[kRangePositions];
  for (int64_t begin = lo; begin < hi; begin += kValueKeys) {
    const int64_t end = std::min(hi, begin + kValueKeys);
    for (int64_t k = begin; k < end; ++k) {
      const T* from = values[k];
      float* to = converted + (k - begin) * acc_stride;
      int64_t at = 0;
      for (; at + kLanes <= head_dim; at += kLanes) Store(Load(from + at), to + at);
      if (at < head_dim) Store(LoadFirst(from + at, head_dim - at), to + at);
      in_place[k] = to;
    }
    AddValues(weights, rows, head_dim, Rows<float>{in_place, 0}, begin, end, {}, acc, acc_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
