// Scores q . k in two forms with the same bits. By rows: lanes = head_dim, for few queries. Transposed: lanes = keys,
// for many, where turning the keys round once is shared by all rows.
//
// A dot product has sixteen partial sums, element d into sum d % 16 in ascending order, added as SumOfLanes adds: i and
// i + 8, then i + 4, i + 2, i + 1.
#if defined(SLIPRING_KERNELS_ATTENTION_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPRING_KERNELS_ATTENTION_SCORES_INL_H_
#undef SLIPRING_KERNELS_ATTENTION_SCORES_INL_H_
#else
#define SLIPRING_KERNELS_ATTENTION_SCORES_INL_H_
#endif

#include <algorithm>

#include "kernels/attention_tile.h"
#include "kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

/// Floats from one row of scores to the next: sixteen more than a range, since stores are whole.
constexpr int64_t kScoreStride = kRangePositions + kLanes;

// Register blocks: accumulators, operands and a spare one fit the target's registers.
#if HWY_TARGET == HWY_AVX3
constexpr int kDotRows = 6, kDotKeys = 4;
constexpr int kBlockRows = 6, kBlockKeyLanes = 2;
#elif HWY_TARGET == HWY_AVX2
constexpr int kDotRows = 2, kDotKeys = 2;
constexpr int kBlockRows = 6, kBlockKeyLanes = 1;
#else
constexpr int kDotRows = 1, kDotKeys = 1;
constexpr int kBlockRows = 1, kBlockKeyLanes = 1;
#endif
constexpr int kBlockKeys = kBlockKeyLanes * kLanes;
static_assert(kBlockRows <= kMostBlockRows && kBlockKeys <= kMostBlockKeys);

/// Rows of `T`, one a key: part of a longer row each, from `offset` elements on.
template <class T>
struct Rows {
  const void* const* start;
  int64_t offset;

  HWY_INLINE const T* operator[](int64_t k) const { return static_cast<const T*>(start[k]) + offset; }
};

/// Rows that will be read later, asked for into the second-level cache while others are at hand: a few lines at a time
/// between the arithmetic, since a core that waits for more lines than it can track does nothing else.
struct RowsAhead {
  const void* const* start = nullptr;  ///< null: ask for nothing
  int64_t offset = 0;                  ///< bytes
  int64_t bytes = 0;                   ///< of a row

  HWY_INLINE void Ask(int64_t row) const {
    if (start == nullptr) return;
    const char* from = static_cast<const char*>(start[row]) + offset;
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i, 0, 2);
  }
};

/// Partial sums of kRows queries with kDotKeys keys into partial[row][key][lane], rows kLanes * kLanes apart.
template <class T, int kRows>
HWY_INLINE void DotBlock(const float* q, int head_dim, const T* const (&key)[kDotKeys], float* partial) {
  const int64_t full = head_dim / kLanes;
  const int64_t tail = head_dim % kLanes;
  const int64_t padded = (full + (tail != 0 ? 1 : 0)) * kLanes;
  Lanes sums[kRows][kDotKeys];
  for (auto& row : sums) {
    for (Lanes& sum : row) sum = Zero();
  }
  const auto add = [&](int64_t at, const Lanes* loaded) HWY_ATTR {
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const Lanes query = Load(q + row * padded + at);
#pragma GCC unroll 8
      for (int i = 0; i < kDotKeys; ++i) sums[row][i] = Fma(query, loaded[i], sums[row][i]);
    }
  };
  for (int64_t step = 0; step < full; ++step) {
    Lanes loaded[kDotKeys];
#pragma GCC unroll 8
    for (int i = 0; i < kDotKeys; ++i) loaded[i] = Load(key[i] + step * kLanes);
    add(step * kLanes, loaded);
  }
  if (tail != 0) {
    Lanes loaded[kDotKeys];
    for (int i = 0; i < kDotKeys; ++i) loaded[i] = LoadFirst(key[i] + full * kLanes, tail);
    add(full * kLanes, loaded);
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int i = 0; i < kDotKeys; ++i) Store(sums[row][i], partial + (row * kLanes + i) * kLanes);
  }
}

/// scores[row][0..16) of kRows queries with `count` <= 16 keys; what is stored behind `count` means nothing.
template <class T, int kRows>
void DotRowsBySixteenKeys(const float* q, int head_dim, Rows<T> keys, int64_t first, int64_t count, RowsAhead ahead,
                          float* scores) {
  alignas(64) float partial[kRows * kLanes * kLanes];
  if (count < kLanes) std::fill(std::begin(partial), std::end(partial), 0.0F);
  for (int64_t i = 0; i < count; i += kDotKeys) {
    const T* at_hand[kDotKeys];
    for (int64_t j = 0; j < kDotKeys; ++j) {
      const int64_t key = first + std::min(i + j, count - 1);
      at_hand[j] = keys[key];
      ahead.Ask(key);
    }
    DotBlock<T, kRows>(q, head_dim, at_hand, partial + i * kLanes);
  }
  for (int row = 0; row < kRows; ++row) {
    Store(SumsOfSixteen(partial + row * kLanes * kLanes), scores + row * kScoreStride);
  }
}

/// Calls function(first row, std::integral_constant<int, count>) for blocks of at most kMost rows.
template <int kMost, class Function>
HWY_INLINE void ForRowBlocks(int64_t rows, const Function& function) {
  int64_t row = 0;
  for (; row + kMost <= rows; row += kMost) function(row, std::integral_constant<int, kMost>());
  if constexpr (kMost > 1) {
    switch (rows - row) {
      case 1:
        return function(row, std::integral_constant<int, 1>());
      case 2:
        return function(row, std::integral_constant<int, 2>());
      case 3:
        return function(row, std::integral_constant<int, std::min(3, kMost)>());
      case 4:
        return function(row, std::integral_constant<int, std::min(4, kMost)>());
      case 5:
        return function(row, std::integral_constant<int, std::min(5, kMost)>());
      default:
        return;
    }
  }
}

/// scores[row][k] = q[row] . key[k] for k in [lo, hi), by rows. q is [rows, head_dim padded to whole lanes]; with key k
/// at hand, row k of `ahead` is asked for.
template <class T>
void DotScores(const float* q, int64_t rows, int head_dim, Rows<T> keys, int64_t lo, int64_t hi, RowsAhead ahead,
               float* scores) {
  const int64_t padded = (head_dim + kLanes - 1) / kLanes * kLanes;
  for (int64_t k = lo; k < hi; k += kLanes) {
    ForRowBlocks<kDotRows>(rows, [&](int64_t row, auto block) HWY_ATTR {
      DotRowsBySixteenKeys<T, block.value>(q + row * padded, head_dim, keys, k, std::min<int64_t>(kLanes, hi - k),
                                           row == 0 ? ahead : RowsAhead{}, scores + row * kScoreStride + k);
    });
  }
}

/// The order in which the transposed form takes the sixteen partial sums, so that a running pairwise sum of them is
/// SumOfLanes's tree: the bits of 0 ... 15 reversed.
constexpr int kSumOrder[kLanes] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};

/// Keys [k, k + kBlockKeys) as [place of d % 16 in kSumOrder][d / 16][key]; keys outside [lo, hi) repeat the nearest.
template <class T>
void TransposeKeys(int head_dim, Rows<T> keys, int64_t k, int64_t lo, int64_t hi, float* transposed) {
  const int64_t steps = (head_dim + kLanes - 1) / kLanes;
  for (int part = 0; part < kBlockKeyLanes; ++part) {
    const T* rows[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      rows[i] = keys[std::clamp(k + part * kLanes + i, lo, hi - 1)];
    }
    for (int64_t step = 0; step < steps; ++step) {
      Lanes square[kLanes];
      const int64_t left = head_dim - step * kLanes;
      if (left >= kLanes) {
        for (int i = 0; i < kLanes; ++i) square[i] = Load(rows[i] + step * kLanes);
      } else {
        for (int i = 0; i < kLanes; ++i) square[i] = LoadFirst(rows[i] + step * kLanes, left);
      }
      Transpose(square);
      for (int i = 0; i < kLanes; ++i) {
        Store(square[kSumOrder[i]], transposed + (i * steps + step) * kBlockKeys + part * kLanes);
      }
    }
  }
}

/// q [rows, padded] as [block of kBlockRows rows][place of d % 16][d / 16][row of the block], zeros for missing rows.
inline void PackForBlocks(const float* q, int64_t rows, int64_t padded, float* packed) {
  const int64_t steps = padded / kLanes;
  for (int64_t first = 0; first < rows; first += kBlockRows) {
    for (int i = 0; i < kLanes; ++i) {
      for (int64_t step = 0; step < steps; ++step) {
        for (int64_t row = first; row < first + kBlockRows; ++row) {
          *packed++ = row < rows ? q[row * padded + step * kLanes + kSumOrder[i]] : 0.0F;
        }
      }
    }
  }
}

/// kBlockRows rows of packed q times kBlockKeys transposed keys.
HWY_NOINLINE void ScoreBlock(const float* packed, const float* transposed, int64_t steps, float* scores) {
  Lanes waiting[4][kBlockRows][kBlockKeyLanes];  // sums of 1, 2, 4 and 8 partial sums that wait for their neighbours
  Lanes sums[kBlockRows][kBlockKeyLanes];
  for (int i = 0; i < kLanes; ++i) {
#pragma GCC unroll 8
    for (auto& row : sums) {
#pragma GCC unroll 8
      for (Lanes& sum : row) sum = Zero();
    }
    for (int64_t step = 0; step < steps; ++step, packed += kBlockRows, transposed += kBlockKeys) {
      Lanes key[kBlockKeyLanes];
#pragma GCC unroll 8
      for (int part = 0; part < kBlockKeyLanes; ++part) key[part] = Load(transposed + part * kLanes);
#pragma GCC unroll 8
      for (int row = 0; row < kBlockRows; ++row) {
        const Lanes query = Set(packed[row]);
#pragma GCC unroll 8
        for (int part = 0; part < kBlockKeyLanes; ++part) sums[row][part] = Fma(query, key[part], sums[row][part]);
      }
    }
    int level = 0;
    for (; ((i >> level) & 1) != 0; ++level) {
#pragma GCC unroll 8
      for (int row = 0; row < kBlockRows; ++row) {
#pragma GCC unroll 8
        for (int part = 0; part < kBlockKeyLanes; ++part) {
          sums[row][part] = Add(waiting[level][row][part], sums[row][part]);
        }
      }
    }
    if (level == 4) break;
#pragma GCC unroll 8
    for (int row = 0; row < kBlockRows; ++row) {
#pragma GCC unroll 8
      for (int part = 0; part < kBlockKeyLanes; ++part) waiting[level][row][part] = sums[row][part];
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kBlockRows; ++row) {
#pragma GCC unroll 8
    for (int part = 0; part < kBlockKeyLanes; ++part) {
      Store(sums[row][part], scores + row * kScoreStride + part * kLanes);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
