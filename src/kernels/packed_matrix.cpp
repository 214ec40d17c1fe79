#include "kernels/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include <slipring/error.h>

#include "kernels/packed_block.h"
#include "kernels/packed_layout.h"
#include "kernels/quantised_activations.h"
#include "kernels/source_blocks.h"
#include "tensor/half.h"

namespace slipring {
namespace {

constexpr int64_t kPackSliceBytes = int64_t{16} << 20;  ///< packed between two calls of packed_rows

bool is_float_weight(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
}

int64_t bytes_per_tile(DType dtype, int64_t cols) {
  const PackedLayout* layout = layout_of(dtype);
  if (layout != nullptr) return layout->tile_bytes(cols);
  return (cols * kTileRows * info(dtype).block_bytes + 63) / 64 * 64;
}

/// Interleaves up to 16 rows of `Element`s: dst[k][lane]. Missing rows stay zero.
template <class Element>
void pack_float_tile(const uint8_t* source, int64_t rows, int64_t cols, uint8_t* dst) {
  const auto row_bytes = static_cast<int64_t>(sizeof(Element)) * cols;
  // 16 columns at a time, so that a source line is read whole and a destination page is written in one go.
  for (int64_t first = 0; first < cols; first += 16) {
    const int64_t end = std::min(cols, first + 16);
    for (int64_t row = 0; row < rows; ++row) {
      Element values[16];
      std::memcpy(values, source + row * row_bytes + first * static_cast<int64_t>(sizeof(Element)),
                  static_cast<size_t>(end - first) * sizeof(Element));
      for (int64_t k = first; k < end; ++k) {
        std::memcpy(dst + (k * kTileRows + row) * static_cast<int64_t>(sizeof(Element)), &values[k - first],
                    sizeof(Element));
      }
    }
  }
}

void or_word(uint8_t* at, uint32_t value) {
  uint32_t word = 0;
  std::memcpy(&word, at, 4);
  word |= value;
  std::memcpy(at, &word, 4);
}
void put_word(uint8_t* at, uint32_t value) {
  std::memcpy(at, &value, 4);
}

/// Stores one row's block of 32 columns (8 words) into the planes at `planes`.
void pack_planes(const PackedLayout& layout, const uint32_t* words, int64_t lane, uint8_t* planes) {
  uint8_t* low = planes + 4 * lane;
  uint8_t* high = low + 64 * layout.low_bits;
  if (layout.low_bits == 8) {
    for (int j = 0; j < 8; ++j) put_word(low + 64 * j, words[j]);
    return;
  }
  if (layout.low_bits == 4) {
    constexpr uint32_t kMask = 0x0F0F0F0FU;
    for (int j = 0; j < 4; ++j) put_word(low + 64 * j, (words[j] & kMask) | (words[j + 4] & kMask) << 4);
  } else {
    constexpr uint32_t kMask = 0x03030303U;
    for (int j = 0; j < 2; ++j) {
      put_word(low + 64 * j, (words[4 * j] & kMask) | (words[4 * j + 1] & kMask) << 2 |
                                 (words[4 * j + 2] & kMask) << 4 | (words[4 * j + 3] & kMask) << 6);
    }
  }
  if (layout.high_bits == 1) {
    uint32_t bits = 0;
    for (int j = 0; j < 8; ++j) bits |= ((words[j] >> layout.low_bits) & 0x01010101U) << j;
    put_word(high, bits);
  } else if (layout.high_bits == 2) {
    for (int j = 0; j < 8; ++j) {
      const uint32_t crumbs = ((words[j] >> layout.low_bits) & 0x03030303U) << (2 * (j % 4));
      if (j % 4 == 0) {
        put_word(high + 64 * (j / 4), crumbs);
      } else {
        or_word(high + 64 * (j / 4), crumbs);
      }
    }
  }
}

void put_half(uint8_t* halves, int64_t lane, uint16_t bits) {
  std::memcpy(halves + 2 * lane, &bits, 2);
}

/// Stores one row's scales of one source block; `scales` is where those of that (super-)block begin.
void pack_scales(const PackedLayout& layout, const SourceBlock& block, int64_t lane, uint8_t* scales) {
  switch (layout.scales) {
    case Scales::f16:
      put_half(scales, lane, block.d);
      return;
    case Scales::f16_min:
      put_half(scales, lane, block.d);
      put_half(scales + 32, lane, block.dmin);
      return;
    case Scales::e8m0:
      scales[lane] = block.scale[0];
      return;
    case Scales::super:
      put_half(scales, lane, block.d);
      for (int i = 0; i < 8 * layout.subs(); ++i) scales[32 + 16 * i + lane] = block.scale[i];
      return;
    case Scales::super_min:
      put_half(scales, lane, block.d);
      put_half(scales + 32, lane, block.dmin);
      for (int i = 0; i < 8; ++i) {
        scales[64 + 32 * i + lane] = block.scale[i];
        scales[64 + 32 * i + 16 + lane] = block.min[i];
      }
      return;
    case Scales::super_nibbles:
      put_half(scales, lane, block.d);
      put_half(scales + 32, lane, block.dmin);
      for (int i = 0; i < 16; ++i) scales[64 + 16 * i + lane] = block.scale[i];
      return;
  }
}

void pack_quantised_tile(DType dtype, const uint8_t* source, int64_t rows, int64_t cols, uint8_t* dst) {
  const PackedLayout& layout = *layout_of(dtype);
  const ReadBlock read = source_reader(dtype);
  const int block_cols = info(dtype).block_elements;
  const int block_bytes = info(dtype).block_bytes;
  const int64_t blocks = cols / block_cols;
  uint8_t* planes = dst + layout.scales_per_tile(cols);
  SourceBlock block{};
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t row = 0; row < rows; ++row) {
      read(source + (row * blocks + b) * block_bytes, block);
      pack_scales(layout, block, row, dst + b * layout.scale_bytes());
      for (int part = 0; part < block_cols / kBlock; ++part) {
        uint8_t* at = planes + (b * (block_cols / kBlock) + part) * layout.plane_bytes();
        pack_planes(layout, block.words + 8 * part, row, at);
      }
    }
  }
}

}  // namespace

PackedMatrix PackedMatrix::pack(const Tensor& weight, ThreadPool& pool,
                                const std::function<void(const Tensor& rows)>& packed_rows) {
  const DType dtype = weight.dtype();
  if (!is_float_weight(dtype) && layout_of(dtype) == nullptr) {
    throw Error(ErrorCode::unsupported, {.where = "weight matrix " + weight.shape().to_string(),
                                         .expected = "F32, F16, BF16 or a quantised type that has a kernel",
                                         .got = std::string(to_string(dtype)),
                                         .advice = "convert the file to another type"});
  }
  PackedMatrix packed;
  packed.rows_ = weight.shape().rows();
  packed.cols_ = weight.shape().cols();
  packed.dtype_ = dtype;
  if (packed.rows_ == 0 || packed.cols_ == 0) return packed;
  const int64_t tiles = (packed.rows_ + kTileRows - 1) / kTileRows;
  const int64_t tile_bytes = bytes_per_tile(dtype, packed.cols_);
  packed.storage_ = Tensor(DType::U8, {tiles, tile_bytes});
  const auto* source = static_cast<const uint8_t*>(weight.raw());
  auto* dst = packed.storage_.data<uint8_t>();
  const int64_t row_bytes = bytes_of(dtype, packed.cols_);
  const auto pack_tile = [&](int64_t tile) {
    const int64_t rows = std::min<int64_t>(kTileRows, packed.rows_ - tile * kTileRows);
    const uint8_t* from = source + tile * kTileRows * row_bytes;
    uint8_t* to = dst + tile * tile_bytes;
    if (dtype == DType::F32) {
      pack_float_tile<uint32_t>(from, rows, packed.cols_, to);
    } else if (is_float_weight(dtype)) {
      pack_float_tile<uint16_t>(from, rows, packed.cols_, to);
    } else {
      pack_quantised_tile(dtype, from, rows, packed.cols_, to);
    }
  };
  const int64_t slice = std::max<int64_t>(1, kPackSliceBytes / tile_bytes);
  for (int64_t first = 0; first < tiles; first += slice) {
    const int64_t count = std::min(slice, tiles - first);
    pool.parallel_for(count, [&](int64_t i, int) { pack_tile(first + i); });
    if (!packed_rows) continue;
    const int64_t row = first * kTileRows;
    const int64_t rows = std::min(count * kTileRows, packed.rows_ - row);
    packed_rows(Tensor::view(dtype, {rows, packed.cols_}, source + row * row_bytes));
  }
  return packed;
}

int64_t PackedMatrix::bytes() const noexcept {
  return storage_.empty() ? 0 : storage_.bytes();
}

int64_t PackedMatrix::tile_bytes() const noexcept {
  return bytes_per_tile(dtype_, cols_);
}

bool PackedMatrix::integer_activations() const noexcept {
  return layout_of(dtype_) != nullptr;
}

void PackedMatrix::dequantise_row(int64_t row, float* out) const {
  const uint8_t* at = tile(row / kTileRows);
  const auto lane = static_cast<int>(row % kTileRows);
  if (const PackedLayout* layout = layout_of(dtype_); layout != nullptr) {
    for (int64_t b = 0; b < cols_ / kBlock; ++b) {
      const PlainBlock block = plain_block(*layout, at, cols_, b, lane);
      for (int i = 0; i < kBlock; ++i) {
        const int sub = i / layout->sub_block;
        const float scaled = block.scale[sub] * static_cast<float>(block.q[i]);
        out[b * kBlock + i] = layout->has_min() ? scaled - block.min[sub] : scaled;
      }
    }
    return;
  }
  for (int64_t k = 0; k < cols_; ++k) {
    const int64_t i = k * kTileRows + lane;
    if (dtype_ == DType::F32) {
      std::memcpy(out + k, at + 4 * i, 4);
      continue;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, at + 2 * i, 2);
    out[k] = dtype_ == DType::F16 ? f32_from_f16(bits) : f32_from_bf16(bits);
  }
}

Activations::Activations(const float* values, int64_t rows, int64_t cols) : values_(values), rows_(rows), cols_(cols) {}
Activations::~Activations() = default;
Activations::Activations(Activations&&) noexcept = default;
Activations& Activations::operator=(Activations&&) noexcept = default;

const QuantisedActivations& Activations::quantised(ThreadPool& pool) {
  if (quantised_ == nullptr) {
    auto made = std::make_unique<QuantisedActivations>(rows_, cols_);
    pool.parallel_for(rows_, [&](int64_t row, int) { quantise_row(values_ + row * cols_, row, *made); });
    quantised_ = std::move(made);
  }
  return *quantised_;
}

const QuantisedActivations& Activations::residual(ThreadPool& pool) {
  if (residual_ == nullptr) {
    const QuantisedActivations& first = quantised(pool);
    auto made = std::make_unique<QuantisedActivations>(rows_, cols_);
    // A row for each worker: tasks may not throw.
    const auto left = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(pool.threads() * cols_));
    pool.parallel_for(rows_, [&](int64_t row, int worker) {
      float* own = left.get() + worker * cols_;
      residual_row(values_ + row * cols_, row, first, own);
      quantise_row(own, row, *made);
    });
    residual_ = std::move(made);
  }
  return *residual_;
}

const float* Activations::interleaved(ThreadPool& pool) {
  if (rows_ == 1) return values_;
  if (interleaved_.empty()) {
    constexpr int64_t kTile = QuantisedActivations::kTile;
    Tensor made(DType::F32, {rows_, cols_});
    auto* out = made.data<float>();
    pool.parallel_for((rows_ + kTile - 1) / kTile, [&](int64_t tile, int) {
      const int64_t height = std::min(kTile, rows_ - tile * kTile);
      const float* from = values_ + tile * kTile * cols_;
      float* to = out + tile * kTile * cols_;
      for (int64_t k = 0; k < cols_; ++k) {
        for (int64_t m = 0; m < height; ++m) to[k * height + m] = from[m * cols_ + k];
      }
    });
    interleaved_ = std::move(made);
  }
  return interleaved_.data<float>();
}

}  // namespace slipring
