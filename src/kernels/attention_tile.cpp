// The arithmetic of attention, once a target: scores (attention_scores-inl.h), softmax with lane = position % 16,
// values (attention_values-inl.h), and the merge of ranges. No part of it depends on how many queries there are at a
// time.
#include "kernels/attention_tile.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_tile.cpp"
#include "kernels/foreach_lanes_target.h"
// foreach_lanes_target.h comes first: it includes this file once a target.
#include "kernels/attention_scores-inl.h"
#include "kernels/attention_values-inl.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Rows from which on it pays to turn the keys round and to convert the values for all of them.
constexpr int64_t kManyRows = 16;

/// Turns the scores of one row into weights e^(score - max) on [lo, hi) and zeros up to the next multiple of 16 on both
/// sides; returns max and sum in `gathered`.
void Softmax(const AttentionTask& task, int64_t lo, int64_t hi, float* scores, float* max_and_sum) {
  const Lanes first = Set(static_cast<float>(lo));
  const Lanes end = Set(static_cast<float>(hi));
  const Lanes hidden = Set(kMinusInfinity);
  const Lanes factor = Set(task.scale);
  const int64_t begin = lo / kLanes * kLanes;
  Lanes highest = hidden;
  for (int64_t k = begin; k < hi; k += kLanes) {
    Lanes s = Mul(Load(scores + k), factor);
    if (task.softcap > 0.0F) s = Softcap(s, task.softcap);
    if (k < lo || k + kLanes > hi) {
      const Lanes number = Add(LaneNumbers(), Set(static_cast<float>(k)));
      s = SelectLess(number, first, hidden, SelectLess(number, end, s, hidden));
    }
    Store(s, scores + k);
    highest = Max(highest, s);
  }
  const float max = MaxOfLanes(highest);
  Lanes sum = Zero();
  for (int64_t k = begin; k < hi; k += kLanes) {
    const Lanes weight = Exp(Sub(Load(scores + k), Set(max)));
    Store(weight, scores + k);
    sum = Add(sum, weight);
  }
  max_and_sum[0] = max;
  max_and_sum[1] = SumOfLanes(sum);
}

/// The tile's queries [rows, head_dim padded with zeros to whole lanes].
void PackQueries(const AttentionTile& tile, int head_dim, float* packed) {
  const int64_t padded = (head_dim + kLanes - 1) / kLanes * kLanes;
  for (int head = 0; head < tile.kv_heads; ++head) {
    for (int64_t query = 0; query < tile.query_count; ++query) {
      const float* from = tile.task->q + tile.element(head, query);
      for (int i = 0; i < tile.group(); ++i) {
        std::copy_n(from, head_dim, packed);
        std::fill(packed + head_dim, packed + padded, 0.0F);
        from += head_dim;
        packed += padded;
      }
    }
  }
}

/// Where the keys, or the values, of positions [begin, end) lie, the tile's first KV head in front; returns the end.
const void** LocateRows(const KVView& view, const void* KVRun::*rows, int kv_head, int64_t begin, int64_t end,
                        const void** to) {
  const int64_t element = bytes_of(view.dtype, 1);
  const int64_t stride = static_cast<int64_t>(view.n_kv_heads) * view.head_dim * element;
  // The runs ascend: the first that ends behind `begin`.
  auto run = std::partition_point(view.runs.begin(), view.runs.end(),
                                  [&](const KVRun& r) { return r.first_position + r.count <= begin; });
  for (int64_t position = begin; position < end; ++run) {
    const int64_t run_end = std::min(end, run->first_position + run->count);
    const std::byte* from = static_cast<const std::byte*>((*run).*rows) + (position - run->first_position) * stride +
                            kv_head * view.head_dim * element;
    for (; position < run_end; ++position, from += stride) *to++ = from;
  }
  return to;
}

/// One range of one tile: what each step needs, and where it leaves its results.
template <class T>
struct RangeAtHand {
  const AttentionTile& tile;
  AttentionScratch& scratch;
  int head_dim;
  int64_t padded;   ///< head_dim in whole lanes
  int64_t stride;   ///< of gathered
  int64_t base;     ///< position that index 0 stands for
  int64_t lo, hi;   ///< indices that any query sees
  float* q;         ///< [rows, padded]
  float* scores;    ///< [rows, kScoreStride]
  float* gathered;  ///< [rows, stride]

  /// Indices that one query sees: [First, End), perhaps empty.
  int64_t First(int64_t query) const { return std::max(base, tile.first_key(query)) - base; }
  int64_t End(int64_t query) const { return std::min(base + kRangePositions, tile.end_key(query)) - base; }

  int64_t Row(int head, int64_t query) const { return head * tile.rows_of_a_head() + query * tile.group(); }
  Rows<T> Keys(int head) const { return {scratch.rows - lo, static_cast<int64_t>(head) * head_dim}; }
  Rows<T> Values(int head) const { return {scratch.rows + (hi - 2 * lo), static_cast<int64_t>(head) * head_dim}; }
  /// What follows `rows` kReadAhead later in the order of scratch.rows; once for all queries.
  RowsAhead Ahead(Rows<T> rows, int64_t query) const {
    if (query > 0) return {};
    constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
    return {rows.start + kReadAhead, rows.offset * kBytes, head_dim * kBytes};
  }
};

// Few rows: memory is what it costs, so positions are walked once, with all KV heads, as they lie.

template <class T>
void ScoresOfFewRows(const RangeAtHand<T>& at) {
  for (int64_t k = at.lo / kLanes * kLanes; k < at.hi; k += kLanes) {
    for (int head = 0; head < at.tile.kv_heads; ++head) {
      for (int64_t query = 0; query < at.tile.query_count; ++query) {
        const int64_t row = at.Row(head, query);
        DotScores(at.q + row * at.padded, at.tile.group(), at.head_dim, at.Keys(head), std::max(k, at.First(query)),
                  std::min(k + kLanes, at.End(query)), at.Ahead(at.Keys(head), query), at.scores + row * kScoreStride);
      }
    }
  }
}

template <class T>
void ValuesOfQuery(const RangeAtHand<T>& at, int head, int64_t query, int64_t lo, int64_t hi, RowsAhead ahead = {}) {
  if (lo >= hi) return;
  const int64_t row = at.Row(head, query);
  AddValues(at.scores + row * kScoreStride, at.tile.group(), at.head_dim, at.Values(head), lo, hi, ahead,
            at.gathered + row * at.stride, at.stride);
}

template <class T>
void ValuesOfFewRows(const RangeAtHand<T>& at) {
  for (int64_t k = at.lo / kValueKeys * kValueKeys; k < at.hi; k += kValueKeys) {
    for (int head = 0; head < at.tile.kv_heads; ++head) {
      for (int64_t query = 0; query < at.tile.query_count; ++query) {
        ValuesOfQuery(at, head, query, std::max(k, at.First(query)), std::min(k + kValueKeys, at.End(query)),
                      at.Ahead(at.Values(head), query));
      }
    }
  }
}

// Many rows: arithmetic is what it costs, so keys are turned round and values converted once for all of them.

template <class T>
void ScoresOfManyRows(const RangeAtHand<T>& at, int head) {
  const int64_t rows = at.tile.rows_of_a_head();
  const int group = at.tile.group();
  const int64_t steps = at.padded / kLanes;
  const int64_t first_row = at.Row(head, 0);
  float* packed = at.scratch.floats(AttentionScratch::kPackedSlot);
  float* transposed = at.scratch.floats(AttentionScratch::kKeySlot);
  PackForBlocks(at.q + first_row * at.padded, rows, at.padded, packed);
  // The spans of keys ascend with the queries, so the queries that see a block of keys are neighbours.
  int64_t first_query = 0;
  int64_t end_query = 0;
  for (int64_t k = at.lo / kBlockKeys * kBlockKeys; k < at.hi; k += kBlockKeys) {
    while (first_query < at.tile.query_count && at.End(first_query) <= k) ++first_query;
    while (end_query < at.tile.query_count && at.First(end_query) < k + kBlockKeys) ++end_query;
    if (first_query >= end_query) continue;
    TransposeKeys(at.head_dim, at.Keys(head), k, at.lo, at.hi, transposed);
    const int64_t end_block = (end_query * group + kBlockRows - 1) / kBlockRows;
    for (int64_t block = first_query * group / kBlockRows; block < end_block; ++block) {
      ScoreBlock(packed + block * kBlockRows * at.padded, transposed, steps,
                 at.scores + (first_row + block * kBlockRows) * kScoreStride + k);
    }
  }
}

/// Keys that all queries see are added for all at once, those before and after them query by query.
template <class T>
void ValuesOfManyRows(const RangeAtHand<T>& at, int head) {
  int64_t begin = 0;
  int64_t end = at.tile.query_count;
  while (begin < end && at.First(begin) >= at.End(begin)) ++begin;
  while (begin < end && at.First(end - 1) >= at.End(end - 1)) --end;
  if (begin == end) return;
  const int64_t lo = at.First(end - 1);
  const int64_t hi = std::max(lo, at.End(begin));
  for (int64_t query = begin; query < end; ++query) {
    ValuesOfQuery(at, head, query, at.First(query), std::min(lo, at.End(query)));
  }
  float* converted = at.scratch.floats(AttentionScratch::kValueSlot);
  const int64_t row = at.Row(head, begin);
  AddValuesOfManyRows(at.scores + row * kScoreStride, (end - begin) * at.tile.group(), at.head_dim, at.Values(head), lo,
                      hi, at.gathered + row * at.stride, at.stride, converted);
  for (int64_t query = begin; query < end; ++query) {
    ValuesOfQuery(at, head, query, std::max(at.First(query), hi), at.End(query));
  }
}

template <class T>
void SoftmaxOfRows(const RangeAtHand<T>& at) {
  for (int head = 0; head < at.tile.kv_heads; ++head) {
    for (int64_t query = 0; query < at.tile.query_count; ++query) {
      const int64_t lo = at.First(query);
      const int64_t hi = at.End(query);
      if (lo >= hi) continue;
      const int64_t first = at.Row(head, query);
      for (int64_t row = first; row < first + at.tile.group(); ++row) {
        Softmax(*at.tile.task, lo, hi, at.scores + row * kScoreStride, at.gathered + row * at.stride + at.padded);
      }
    }
  }
}

template <class T>
void AttendRangeOf(const AttentionTile& tile, int64_t range, AttentionScratch& scratch, float* gathered) {
  const int head_dim = tile.task->view->head_dim;
  const int64_t stride = gathered_stride(head_dim);
  const int64_t padded = stride - kLanes;
  const int64_t rows = tile.rows();
  const int64_t base = range * kRangePositions;
  const int64_t lo = std::max(base, tile.first_key(0)) - base;
  const int64_t hi = std::min(base + kRangePositions, tile.end_key(tile.query_count - 1)) - base;
  const KVView& view = *tile.task->view;
  const void** rows_end = LocateRows(view, &KVRun::k, tile.kv_head, base + lo, base + hi, scratch.rows);
  rows_end = LocateRows(view, &KVRun::v, tile.kv_head, base + lo, base + hi, rows_end);
  const int64_t ahead = std::min(base + hi + kReadAhead, tile.end_key(tile.query_count - 1));
  const void** ahead_end = LocateRows(view, &KVRun::k, tile.kv_head, base + hi, ahead, rows_end);
  std::fill(ahead_end, rows_end + kReadAhead, rows_end[-1]);
  const RangeAtHand<T> at{.tile = tile,
                          .scratch = scratch,
                          .head_dim = head_dim,
                          .padded = padded,
                          .stride = stride,
                          .base = base,
                          .lo = lo,
                          .hi = hi,
                          .q = scratch.floats(AttentionScratch::kQuerySlot),
                          .scores = scratch.floats(AttentionScratch::kScoreSlot),
                          .gathered = gathered};
  PackQueries(tile, head_dim, at.q);
  std::fill(gathered, gathered + rows * stride, 0.0F);
  if (tile.rows_of_a_head() < kManyRows) {
    ScoresOfFewRows(at);
    SoftmaxOfRows(at);
    ValuesOfFewRows(at);
    return;
  }
  for (int head = 0; head < tile.kv_heads; ++head) ScoresOfManyRows(at, head);
  SoftmaxOfRows(at);
  for (int head = 0; head < tile.kv_heads; ++head) ValuesOfManyRows(at, head);
}

void AttendRange(const AttentionTile& tile, int64_t range, AttentionScratch& scratch, float* gathered) {
  switch (tile.task->view->dtype) {
    case DType::F16:
      return AttendRangeOf<F16>(tile, range, scratch, gathered);
    case DType::BF16:
      return AttendRangeOf<BF16>(tile, range, scratch, gathered);
    default:
      return AttendRangeOf<float>(tile, range, scratch, gathered);
  }
}

HWY_INLINE float ExpOf(float x) {
  float all[kLanes];
  Store(Exp(Set(x)), all);
  return all[0];
}

void MergeGathered(const AttentionTile& tile, const float* later, float* gathered) {
  const int64_t stride = gathered_stride(tile.task->view->head_dim);
  const int64_t padded = stride - kLanes;
  for (int64_t row = 0; row < tile.rows(); ++row, later += stride, gathered += stride) {
    if (later[padded + 1] == 0.0F) continue;
    if (gathered[padded + 1] == 0.0F) {
      std::copy_n(later, stride, gathered);
      continue;
    }
    const float max = std::max(gathered[padded], later[padded]);
    const float old_factor = ExpOf(gathered[padded] - max);
    const float new_factor = ExpOf(later[padded] - max);
    gathered[padded] = max;
    gathered[padded + 1] = std::fma(gathered[padded + 1], old_factor, later[padded + 1] * new_factor);
    for (int64_t d = 0; d < padded; d += kLanes) {
      Store(Fma(Load(gathered + d), Set(old_factor), Mul(Load(later + d), Set(new_factor))), gathered + d);
    }
  }
}

void WriteAttention(const AttentionTile& tile, const float* gathered) {
  const AttentionTask& task = *tile.task;
  const int head_dim = task.view->head_dim;
  const int64_t stride = gathered_stride(head_dim);
  const int64_t padded = stride - kLanes;
  const int group = tile.group();
  for (int64_t row = 0; row < tile.rows(); ++row, gathered += stride) {
    const auto kv_head = static_cast<int>(row / tile.rows_of_a_head());
    const int64_t query = row % tile.rows_of_a_head() / group;
    const int64_t head = static_cast<int64_t>(tile.kv_head + kv_head) * group + row % group;
    float* out = task.out + tile.element(kv_head, query) + row % group * head_dim;
    float sum = gathered[padded + 1];
    if (sum == 0.0F) {
      std::fill(out, out + head_dim, 0.0F);
      continue;
    }
    float factor = 1.0F;
    if (task.sinks != nullptr) {
      const float max = std::max(gathered[padded], task.sinks[head]);
      factor = ExpOf(gathered[padded] - max);
      sum = std::fma(sum, factor, ExpOf(task.sinks[head] - max));
    }
    factor /= sum;
    int64_t d = 0;
    for (; d + kLanes <= head_dim; d += kLanes) Store(Mul(Load(gathered + d), Set(factor)), out + d);
    if (d < head_dim) StoreFirst(Mul(Load(gathered + d), Set(factor)), head_dim - d, out + d);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipring {

HWY_EXPORT(AttendRange);
HWY_EXPORT(MergeGathered);
HWY_EXPORT(WriteAttention);

void attend_range(const AttentionTile& tile, int64_t range, AttentionScratch& scratch, float* gathered) {
  HWY_DYNAMIC_DISPATCH(AttendRange)(tile, range, scratch, gathered);
}
void merge_gathered(const AttentionTile& tile, const float* later, float* gathered) {
  HWY_DYNAMIC_DISPATCH(MergeGathered)(tile, later, gathered);
}
void write_attention(const AttentionTile& tile, const float* gathered) {
  HWY_DYNAMIC_DISPATCH(WriteAttention)(tile, gathered);
}

}  // namespace slipring
#endif  // HWY_ONCE
