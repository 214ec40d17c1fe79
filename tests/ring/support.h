// What the proofs of the ring share: an oracle that knows nothing of rings, a layer that is stepped beside it, and a
// deliberately broken ring that writes first.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <slipring/kv_block.h>
#include <slipring/layer_cache.h>
#include <slipring/tensor.h>

namespace slipring::test {

/// Sizes of the toy layer: two query heads to a KV head.
inline constexpr int kHeads = 4;
inline constexpr int kKVHeads = 2;
inline constexpr int kDim = 4;
inline constexpr KVLayout kLayout{.n_kv_heads = kKVHeads, .head_dim = kDim, .dtype = DType::F32};

/// Largest absolute difference; infinity if the sizes differ.
double max_difference(std::span<const double> a, std::span<const double> b);
std::vector<double> widened(std::span<const float> x);

/// Queries, keys and values of positions 0 ... n - 1 of one layer, normally distributed and fixed by the seed. With a
/// growth, values rise by that much a position, so losing any key moves the output visibly.
struct Stream {
  Stream(int64_t n, uint32_t seed, DType dtype = DType::F32, float growth = 0);

  KVBlock block(int64_t first, int64_t count) const { return whole.slice(first, count); }
  const float* queries(int64_t first) const { return q.data<float>() + first * kHeads * kDim; }

  int64_t length;
  Tensor q;  ///< [n, kHeads, kDim]
  KVBlock whole;

 private:
  Stream(int64_t n, std::mt19937 random, DType dtype, float growth);
};

/// The true answer for positions first ... first + count - 1: each query over the last `window` positions of the full
/// log, in float64, by index arithmetic on the log alone. [count, kHeads, kDim]
std::vector<double> oracle(const Stream& stream, int64_t first, int64_t count, int64_t window);

/// One step on the concat path with the float32 reference attention: fetch, attend, commit. [count, kHeads, kDim]
std::vector<float> concat_step(LayerCache& cache, const Stream& stream, int64_t count, int64_t window);
/// One decode step on the write-first path.
std::vector<float> decode_step(LayerCache& cache, const Stream& stream, int64_t window);
/// Attention of `count` queries from position `first` on over a view, under a window. [count, kHeads, kDim]
std::vector<float> attend(const KVView& view, const Stream& stream, int64_t first, int64_t count, int64_t window);

/// Softmax attention over rows [n, kKVHeads, kDim] of which query i sees those with mask[i * n + row] != 0: what an
/// exported program computes. [count, kHeads, kDim]
std::vector<double> masked_attention(const Stream& stream, int64_t first, int64_t count, const Tensor& mask,
                                     const std::vector<const float*>& k_rows, const std::vector<const float*>& v_rows);

/// The bug on purpose: writes the whole step into the ring, then attends over the slots under the mask of the layout
/// after the write. Lives here only.
class WriteFirstRing {
 public:
  WriteFirstRing(int64_t capacity, int64_t window);
  /// Takes positions offset ... offset + count - 1 of the stream; any count up to the capacity.
  std::vector<double> step(const Stream& stream, int64_t count);
  int64_t offset() const { return offset_; }

 private:
  int64_t capacity_;
  int64_t window_;
  int64_t offset_ = 0;
  std::vector<const float*> k_;
  std::vector<const float*> v_;
};

/// Whether writing a step first loses a key that one of its queries sees.
bool write_first_loses_keys(int64_t offset, int64_t query_len, int64_t capacity, int64_t window);

}  // namespace slipring::test
