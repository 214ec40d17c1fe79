// Float weights (F32, F16, BF16) times float activations; see matmul_tile.h for the arithmetic.
#include "kernels/matmul_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_float.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first: it includes this file once a target.
#include <hwy/highway.h>

#include "kernels/packed_layout.h"

HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLanes = HWY_TARGET == HWY_AVX2 ? 8 : 16;
constexpr size_t kHalves = 16 / kLanes;  ///< vectors for the 16 rows of a tile
/// Rows of activations at a time: two partial sums each must stay in registers (16 of them, or 32).
constexpr size_t kMaxRows = HWY_TARGET == HWY_AVX2 ? 4 : 8;
constexpr size_t kPrefetchBytes = 8192;  ///< how far ahead of its reads a kernel asks for the weights
using D = hn::FixedTag<float, kLanes>;
using V = hn::Vec<D>;

struct F32Weights {
  static constexpr size_t kBytes = 4;
  static HWY_INLINE V Load(const uint8_t* p) { return hn::LoadU(D(), reinterpret_cast<const float*>(p)); }
};
struct F16Weights {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE V Load(const uint8_t* p) {
#if HWY_TARGET == HWY_AVX2
    return V{_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
#else
    return V{_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
#endif
  }
};
struct BF16Weights {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE V Load(const uint8_t* p) {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<uint16_t, D> d16;
    const auto bits = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
    return hn::BitCast(D(), hn::ShiftLeft<16>(bits));
  }
};

/// kRows rows of x; kTogether of the tile's vectors at a time.
template <class Weights, size_t kRows, size_t kTogether>
void Rows(const uint8_t* tile, size_t cols, const float* x, size_t stride, float* out) {
  const D d;
  constexpr size_t kColumnBytes = 16 * Weights::kBytes;
  constexpr size_t kVectorBytes = kLanes * Weights::kBytes;
  for (size_t part = 0; part < kHalves; part += kTogether) {
    const uint8_t* w = tile + part * kVectorBytes;
    V even[kTogether][kRows];
    V odd[kTogether][kRows];
    for (size_t v = 0; v < kTogether; ++v) {
      for (size_t m = 0; m < kRows; ++m) even[v][m] = odd[v][m] = hn::Zero(d);
    }
    size_t k = 0;
    for (; k + 2 <= cols; k += 2) {
      __builtin_prefetch(w + k * kColumnBytes + kPrefetchBytes, 0, 2);
      if (kColumnBytes == 64) __builtin_prefetch(w + k * kColumnBytes + kPrefetchBytes + 64, 0, 2);
      V w0[kTogether];
      V w1[kTogether];
      for (size_t v = 0; v < kTogether; ++v) {
        w0[v] = Weights::Load(w + k * kColumnBytes + v * kVectorBytes);
        w1[v] = Weights::Load(w + (k + 1) * kColumnBytes + v * kVectorBytes);
      }
      for (size_t m = 0; m < kRows; ++m) {
        const V x0 = hn::Set(d, x[k * stride + m]);
        const V x1 = hn::Set(d, x[(k + 1) * stride + m]);
        for (size_t v = 0; v < kTogether; ++v) {
          even[v][m] = hn::MulAdd(w0[v], x0, even[v][m]);
          odd[v][m] = hn::MulAdd(w1[v], x1, odd[v][m]);
        }
      }
    }
    if (k < cols) {
      for (size_t m = 0; m < kRows; ++m) {
        const V x0 = hn::Set(d, x[k * stride + m]);
        for (size_t v = 0; v < kTogether; ++v) {
          even[v][m] = hn::MulAdd(Weights::Load(w + k * kColumnBytes + v * kVectorBytes), x0, even[v][m]);
        }
      }
    }
    for (size_t v = 0; v < kTogether; ++v) {
      for (size_t m = 0; m < kRows; ++m) {
        hn::StoreU(hn::Add(even[v][m], odd[v][m]), d, out + m * 16 + (part + v) * kLanes);
      }
    }
  }
}

template <class Weights>
void Tile(const uint8_t* tile, int64_t cols, const float* x, int64_t stride, int64_t rows, float* out) {
  const auto n = static_cast<size_t>(cols);
  const auto step = static_cast<size_t>(stride);
  while (rows > 0) {
    size_t done = 1;
    if (rows >= static_cast<int64_t>(kMaxRows)) {
      Rows<Weights, kMaxRows, 1>(tile, n, x, step, out);
      done = kMaxRows;
    } else if (rows >= 4) {
      Rows<Weights, 4, 1>(tile, n, x, step, out);
      done = 4;
    } else if (rows >= 2) {
      Rows<Weights, 2, kHalves>(tile, n, x, step, out);
      done = 2;
    } else {
      Rows<Weights, 1, kHalves>(tile, n, x, step, out);
    }
    rows -= static_cast<int64_t>(done);
    x += done;
    out += done * 16;
  }
}

void F32Tile(const uint8_t* tile, int64_t cols, const float* x, int64_t stride, int64_t rows, float* out) {
  Tile<F32Weights>(tile, cols, x, stride, rows, out);
}
void F16Tile(const uint8_t* tile, int64_t cols, const float* x, int64_t stride, int64_t rows, float* out) {
  Tile<F16Weights>(tile, cols, x, stride, rows, out);
}
void BF16Tile(const uint8_t* tile, int64_t cols, const float* x, int64_t stride, int64_t rows, float* out) {
  Tile<BF16Weights>(tile, cols, x, stride, rows, out);
}
#else
void F32Tile(const uint8_t* tile, int64_t cols, const float* x, int64_t stride, int64_t rows, float* out) {
  float_tile_scalar(DType::F32, tile, cols, x, stride, rows, out);
}
void F16Tile(const uint8_t* tile, int64_t cols, const float* x, int64_t stride, int64_t rows, float* out) {
  float_tile_scalar(DType::F16, tile, cols, x, stride, rows, out);
}
void BF16Tile(const uint8_t* tile, int64_t cols, const float* x, int64_t stride, int64_t rows, float* out) {
  float_tile_scalar(DType::BF16, tile, cols, x, stride, rows, out);
}
#endif

FloatTile ChooseFloatTile(DType dtype) {
  return dtype == DType::F32 ? F32Tile : dtype == DType::F16 ? F16Tile : BF16Tile;
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipring {

HWY_EXPORT(ChooseFloatTile);

FloatTile float_tile(DType dtype) {
  return HWY_DYNAMIC_DISPATCH(ChooseFloatTile)(dtype);
}

}  // namespace slipring
#endif  // HWY_ONCE
