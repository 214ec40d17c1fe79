// The arithmetic of attention, once a target. Scores: lanes = head_dim, sixteen partial sums added in one fixed tree.
// Values: lanes = head_dim, keys in ascending order. Softmax sums: lane = position % 16.
#include "kernels/attention_tile.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_tile.cpp"
#include "kernels/foreach_lanes_target.h"
// foreach_lanes_target.h comes first: it includes this file once a target.
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

constexpr int64_t kScoreStride = kRangePositions + kLanes;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Rows of one element type and length, read in steps of sixteen.
template <class T>
struct RowReader {
  int64_t full;  ///< whole steps
  int64_t tail;  ///< elements behind them
  explicit RowReader(int head_dim) : full(head_dim / kLanes), tail(head_dim % kLanes) {}
  int64_t steps() const { return full + (tail != 0 ? 1 : 0); }
  HWY_INLINE Lanes Step(const T* row, int64_t step) const {
    return step < full ? Load(row + step * kLanes) : LoadFirst(row + step * kLanes, tail);
  }
};

/// scores[row][k] = q[row] . key[k] for k in [lo, hi).
template <class T>
void DotScores(const float* q, int64_t rows, int head_dim, const void* const* keys, int64_t lo, int64_t hi,
               float* scores) {
  const RowReader<T> reader(head_dim);
  const int64_t steps = reader.steps();
  for (int64_t k = lo; k < hi; ++k) {
    const T* key = static_cast<const T*>(keys[k]);
    for (int64_t row = 0; row < rows; ++row) {
      Lanes sum = Zero();
      for (int64_t step = 0; step < steps; ++step) {
        sum = Fma(Load(q + (row * steps + step) * kLanes), reader.Step(key, step), sum);
      }
      scores[row * kScoreStride + k] = SumOfLanes(sum);
    }
  }
}

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

/// acc[row] += sum over k in [lo, hi) of weights[row][k] * value[k], keys in ascending order.
template <class T>
void AddValues(const float* weights, int64_t rows, int head_dim, const void* const* values, int64_t lo, int64_t hi,
               float* acc, int64_t acc_stride) {
  const RowReader<T> reader(head_dim);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t step = 0; step < reader.steps(); ++step) {
      float* place = acc + row * acc_stride + step * kLanes;
      Lanes sum = Load(place);
      for (int64_t k = lo; k < hi; ++k) {
        sum = Fma(Set(weights[row * kScoreStride + k]), reader.Step(static_cast<const T*>(values[k]), step), sum);
      }
      Store(sum, place);
    }
  }
}

/// The tile's queries [rows, head_dim padded with zeros to whole lanes].
void PackQueries(const AttentionTile& tile, int head_dim, float* packed) {
  const int64_t padded = (head_dim + kLanes - 1) / kLanes * kLanes;
  const AttentionTask& task = *tile.task;
  const int group = tile.group();
  for (int64_t query = 0; query < tile.query_count; ++query) {
    const float* from =
        task.q + ((tile.query_begin + query) * task.n_heads + static_cast<int64_t>(tile.kv_head) * group) * head_dim;
    for (int head = 0; head < group; ++head) {
      std::copy_n(from, head_dim, packed);
      std::fill(packed + head_dim, packed + padded, 0.0F);
      from += head_dim;
      packed += padded;
    }
  }
}

/// Where the keys and values of positions [begin, end) lie, in scratch.k_rows and v_rows from index begin - base on.
void LocateRows(const KVView& view, int kv_head, int64_t base, int64_t begin, int64_t end, AttentionScratch& scratch) {
  const int64_t element = bytes_of(view.dtype, 1);
  const int64_t stride = static_cast<int64_t>(view.n_kv_heads) * view.head_dim * element;
  const int64_t start = static_cast<int64_t>(kv_head) * view.head_dim * element;
  // The runs ascend: the first that ends behind `begin`.
  auto run = std::partition_point(view.runs.begin(), view.runs.end(),
                                  [&](const KVRun& r) { return r.first_position + r.count <= begin; });
  for (int64_t position = begin; position < end; ++run) {
    const int64_t run_end = std::min(end, run->first_position + run->count);
    for (; position < run_end; ++position) {
      const int64_t at = (position - run->first_position) * stride + start;
      scratch.k_rows[position - base] = static_cast<const std::byte*>(run->k) + at;
      scratch.v_rows[position - base] = static_cast<const std::byte*>(run->v) + at;
    }
  }
}

template <class T>
void AttendRangeOf(const AttentionTile& tile, int64_t range, AttentionScratch& scratch, float* gathered) {
  const AttentionTask& task = *tile.task;
  const int head_dim = task.view->head_dim;
  const int64_t padded = (head_dim + kLanes - 1) / kLanes * kLanes;
  const int64_t stride = gathered_stride(head_dim);
  const int group = tile.group();
  const int64_t base = range * kRangePositions;
  const int64_t begin = std::max(base, tile.first_key(0));
  const int64_t end = std::min(base + kRangePositions, tile.end_key(tile.query_count - 1));
  LocateRows(*task.view, tile.kv_head, base, begin, end, scratch);
  float* q = scratch.floats(AttentionScratch::kQuerySlot, tile.rows() * padded);
  float* scores = scratch.floats(AttentionScratch::kScoreSlot, tile.rows() * kScoreStride);
  PackQueries(tile, head_dim, q);
  std::fill(gathered, gathered + tile.rows() * stride, 0.0F);
  for (int64_t query = 0; query < tile.query_count; ++query) {
    const int64_t lo = std::max(base, tile.first_key(query)) - base;
    const int64_t hi = std::min(base + kRangePositions, tile.end_key(query)) - base;
    if (lo >= hi) continue;
    const int64_t row = query * group;
    DotScores<T>(q + row * padded, group, head_dim, scratch.k_rows, lo, hi, scores + row * kScoreStride);
    for (int64_t r = row; r < row + group; ++r) {
      Softmax(task, lo, hi, scores + r * kScoreStride, gathered + r * stride + padded);
    }
    AddValues<T>(scores + row * kScoreStride, group, head_dim, scratch.v_rows, lo, hi, gathered + row * stride, stride);
  }
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
    const int64_t head = static_cast<int64_t>(tile.kv_head) * group + row % group;
    float* out = task.out + ((tile.query_begin + row / group) * task.n_heads + head) * head_dim;
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
