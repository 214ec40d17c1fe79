#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/matmul_tile.h"
#include "kernels/packed_layout.h"

namespace slipring {
namespace {

constexpr int64_t kRowTile = QuantisedActivations::kTile;
/// Bytes of activations that one pass over the weights keeps in a core's second-level cache.
constexpr int64_t kActivationBytes = 384 * 1024;

/// Writes a tile's sums [rows][16] to y, leaving out the padding rows of the last tile.
void store(const float* sums, int64_t rows, const MatmulOutput& output, int64_t tile, int64_t first_row) {
  const int64_t n = output.weight->rows();
  const int64_t first = tile * kTileRows;
  const int64_t count = std::min<int64_t>(kTileRows, n - first);
  for (int64_t m = 0; m < rows; ++m) {
    float* y = output.y + (first_row + m) * n + first;
    const float* sum = sums + m * kTileRows;
    if (output.bias != nullptr) {
      for (int64_t i = 0; i < count; ++i) y[i] = sum[i] + output.bias[first + i];
    } else if (count == kTileRows) {
      std::memcpy(y, sum, kTileRows * sizeof(float));
    } else {
      std::memcpy(y, sum, static_cast<size_t>(count) * sizeof(float));
    }
  }
}

void add_sums(const float* more, int64_t rows, float* sums) {
  for (int64_t i = 0; i < rows * kTileRows; ++i) sums[i] += more[i];
}

/// An output with what its tiles need.
struct Job {
  const MatmulOutput* output;
  FloatTile float_kernel;
  QuantisedTile quantised_kernel;
  int64_t end;  ///< tiles of this and all earlier outputs
};

struct Place {
  const Job* job;
  int64_t tile;  ///< within the job
};

Place find(const std::vector<Job>& jobs, int64_t tile) {
  const Job* job = jobs.data();
  while (tile >= job->end) ++job;
  return {job, job == jobs.data() ? tile : tile - job[-1].end};
}

/// Lets waiting workers fetch what the next multiplication will probably begin with: between two of them, while one
/// thread computes norms and the like, memory would do nothing.
void announce(const std::vector<Job>& jobs, int64_t items, int64_t tiles, ThreadPool& pool) {
  if (pool.threads() == 1) return;
  std::vector<const uint8_t*> starts;
  for (int worker = 0; worker < pool.threads(); ++worker) {
    const Place place = find(jobs, std::min(pool.first_item(items, worker), items - 1) % tiles);
    starts.push_back(place.job->output->weight->tile(place.tile));
  }
  pool.will_read(pool.read_ahead().reading(starts));
}

}  // namespace

QuantisedTile quantised_tile(DType dtype) {
  for (const auto family : {quantised_tile_simple, quantised_tile_super, quantised_tile_table}) {
    if (const QuantisedTile tile = family(dtype); tile != nullptr) return tile;
  }
  return nullptr;
}

void matmul(Activations& x, std::span<const MatmulOutput> outputs, ThreadPool& pool) {
  const int64_t rows = x.rows();
  if (rows == 0) return;
  const QuantisedActivations* quantised = nullptr;
  const QuantisedActivations* residual = nullptr;
  const float* interleaved = nullptr;
  std::vector<Job> jobs;
  int64_t tiles = 0;
  for (const MatmulOutput& output : outputs) {
    Job job{&output, nullptr, nullptr, 0};
    if (output.weight->integer_activations()) {
      quantised = &x.quantised(pool);
      if (output.fine_activations) residual = &x.residual(pool);
      job.quantised_kernel = quantised_tile(output.weight->dtype());
    } else {
      interleaved = x.interleaved(pool);
      job.float_kernel = float_tile(output.weight->dtype());
    }
    tiles += (output.weight->rows() + kTileRows - 1) / kTileRows;
    job.end = tiles;
    jobs.push_back(job);
  }
  // Passes over the weights, each with as many rows of x as stay in cache. Inside a pass an item is one tile of weights
  // for all the pass's rows; neighbouring items go to one thread, which so streams through its part of the matrix.
  const int64_t row_bytes = x.cols() * (interleaved != nullptr ? 4 : 1);
  const int64_t fitting = std::max(kRowTile, kActivationBytes / std::max<int64_t>(1, row_bytes) / kRowTile * kRowTile);
  const int64_t passes = (rows + fitting - 1) / fitting;
  announce(jobs, passes * tiles, tiles, pool);
  pool.parallel_for(passes * tiles, [&](int64_t item, int) {
    const int64_t pass = item / tiles;
    const auto [job, tile] = find(jobs, item % tiles);
    const PackedMatrix& weight = *job->output->weight;
    const uint8_t* packed = weight.tile(tile);
    const int64_t last = std::min(rows, (pass + 1) * fitting);
    alignas(64) float sums[kRowTile * kTileRows];
    for (int64_t first = pass * fitting; first < last; first += kRowTile) {
      const int64_t height = std::min(kRowTile, rows - first);
      if (job->quantised_kernel != nullptr) {
        const ActivationBlocks blocks(*quantised, first / kRowTile);
        job->quantised_kernel(packed, weight.cols(), blocks, height, sums);
        if (job->output->fine_activations) {
          alignas(64) float rest[kRowTile * kTileRows];
          job->quantised_kernel(packed, weight.cols(), ActivationBlocks(*residual, first / kRowTile), height, rest);
          add_sums(rest, height, sums);
        }
      } else {
        job->float_kernel(packed, weight.cols(), interleaved + first * x.cols(), height, height, sums);
      }
      store(sums, height, *job->output, tile, first);
    }
  });
}

void matmul_scalar(Activations& x, std::span<const MatmulOutput> outputs) {
  QuantisedActivations quantised(x.rows(), x.cols() / kBlock * kBlock);
  for (int64_t row = 0; x.cols() % kBlock == 0 && row < x.rows(); ++row) {
    quantise_row_scalar(x.values() + row * x.cols(), row, quantised);
  }
  QuantisedActivations residual(x.rows(), x.cols() / kBlock * kBlock);
  std::vector<float> left(static_cast<size_t>(x.cols()));
  for (int64_t row = 0; x.cols() % kBlock == 0 && row < x.rows(); ++row) {
    residual_row(x.values() + row * x.cols(), row, quantised, left.data());
    quantise_row_scalar(left.data(), row, residual);
  }
  std::array<float, kRowTile * kTileRows> sums;  // NOLINT: written before read
  std::array<float, kRowTile * kTileRows> rest;  // NOLINT: written before read
  for (const MatmulOutput& output : outputs) {
    const PackedMatrix& weight = *output.weight;
    for (int64_t tile = 0; tile < (weight.rows() + kTileRows - 1) / kTileRows; ++tile) {
      if (weight.integer_activations()) {
        for (int64_t first = 0; first < x.rows(); first += kRowTile) {
          const int64_t height = std::min(kRowTile, x.rows() - first);
          const ActivationBlocks blocks(quantised, first / kRowTile);
          quantised_tile_scalar(weight.dtype(), weight.tile(tile), weight.cols(), blocks, height, sums.data());
          if (output.fine_activations) {
            quantised_tile_scalar(weight.dtype(), weight.tile(tile), weight.cols(),
                                  ActivationBlocks(residual, first / kRowTile), height, rest.data());
            add_sums(rest.data(), height, sums.data());
          }
          store(sums.data(), height, output, tile, first);
        }
        continue;
      }
      for (int64_t row = 0; row < x.rows(); ++row) {
        float_tile_scalar(weight.dtype(), weight.tile(tile), weight.cols(), x.values() + row * x.cols(), 1, 1,
                          sums.data());
        store(sums.data(), 1, output, tile, row);
      }
    }
  }
}

}  // namespace slipring
