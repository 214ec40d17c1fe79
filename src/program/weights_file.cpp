#include "program/weights_file.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include <slipring/error.h>

#include "formats/block_layouts.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "kernels/packed_block.h"
#include "tensor/half.h"

namespace slipring {
namespace {

constexpr int64_t kBlockColumns = 32;

/// One part of one constant, still to be written.
struct Job {
  WeightPart part;
  const Constant* constant;
};

/// The same bits whoever holds them: a constant of two programs is one weight.
const void* identity(const Constant& constant) {
  if (const auto* linear = std::get_if<std::shared_ptr<const Linear>>(&constant.weight)) {
    return (*linear)->matrix.tile(0);
  }
  if (const auto* norm = std::get_if<std::shared_ptr<const Norm>>(&constant.weight)) return (*norm)->weight.raw();
  return std::get<Tensor>(constant.weight).raw();
}

std::vector<Job> collect(std::span<const Program* const> programs) {
  std::map<std::string, Job> jobs;
  for (const Program* program : programs) {
    program->check_writable();
    for (const Constant& constant : program->constants) {
      for (WeightPart& part : weight_parts(*program, constant)) {
        const auto [found, is_new] = jobs.emplace(part.name, Job{part, &constant});
        if (is_new || identity(*found->second.constant) == identity(constant)) continue;
        throw Error(
            ErrorCode::internal,
            {.where = "weight " + part.name, .expected = "one weight of that name", .got = "two", .advice = {}});
      }
    }
  }
  std::vector<Job> ordered;
  for (auto& [name, job] : jobs) ordered.push_back(std::move(job));
  // The widest elements first, so that every tensor starts aligned to its own.
  std::stable_sort(ordered.begin(), ordered.end(), [](const Job& a, const Job& b) {
    return info(a.part.dtype).block_bytes > info(b.part.dtype).block_bytes;
  });
  return ordered;
}

template <class T>
void append(SafetensorsWriter& writer, const std::vector<T>& values) {
  writer.append(std::as_bytes(std::span(values)));
}

void write_rows(SafetensorsWriter& writer, const PackedMatrix& matrix, DType dtype) {
  const auto cols = static_cast<size_t>(matrix.cols());
  std::vector<float> row(cols);
  std::vector<uint16_t> halves(cols);
  for (int64_t i = 0; i < matrix.rows(); ++i) {
    matrix.dequantise_row(i, row.data());
    if (dtype == DType::F32) {
      append(writer, row);
      continue;
    }
    // The values came from this type, so nothing is rounded here.
    for (size_t k = 0; k < cols; ++k) halves[k] = dtype == DType::F16 ? f16_from_f32(row[k]) : bf16_from_f32(row[k]);
    append(writer, halves);
  }
}

/// Blocks as MatMulNBits reads them: unsigned, 8 or 128 in the middle, two 4-bit neighbours a byte, the first one low.
void write_blocks(SafetensorsWriter& writer, const PackedMatrix& matrix, bool scales) {
  const PackedLayout& layout = *layout_of(matrix.dtype());
  const bool four_bits = matrix.dtype() == DType::Q4_0;
  std::vector<uint8_t> bytes;
  std::vector<float> factors;
  for (int64_t i = 0; i < matrix.rows(); ++i) {
    bytes.clear();
    factors.clear();
    for (int64_t b = 0; b < matrix.cols() / kBlockColumns; ++b) {
      const PlainBlock block =
          plain_block(layout, matrix.tile(i / kTileRows), matrix.cols(), b, static_cast<int>(i % kTileRows));
      factors.push_back(block.scale[0]);
      for (size_t k = 0; k < kBlockColumns; k += four_bits ? 2 : 1) {
        const int low = block.q[k] + layout.offset;
        bytes.push_back(static_cast<uint8_t>(four_bits ? low | (block.q[k + 1] + layout.offset) << 4 : low));
      }
    }
    if (scales) {
      append(writer, factors);
    } else {
      append(writer, bytes);
    }
  }
}

void write_part(SafetensorsWriter& writer, const Job& job) {
  const WeightPart& part = job.part;
  if (const auto* norm = std::get_if<std::shared_ptr<const Norm>>(&job.constant->weight)) {
    return writer.append((*norm)->weight.span());
  }
  if (const auto* tensor = std::get_if<Tensor>(&job.constant->weight)) return writer.append(tensor->span());
  const Linear& linear = *std::get<std::shared_ptr<const Linear>>(job.constant->weight);
  if (part.name == job.constant->name) return write_rows(writer, linear.matrix, part.dtype);
  if (part.name.ends_with(".bias")) return writer.append(linear.bias.span());
  write_blocks(writer, linear.matrix, part.name.ends_with(".scales"));
}

}  // namespace

WeightPlaces write_weights(std::span<const Program* const> programs, const std::filesystem::path& folder) {
  const std::vector<Job> jobs = collect(programs);
  const std::filesystem::path target = folder / kWeightsFile;
  SafetensorsWriter writer(target, {{"format", "slipring"}});
  for (const Job& job : jobs) {
    writer.declare(job.part.name, job.part.dtype, Shape(std::span<const int64_t>(job.part.dims)));
  }
  for (const Job& job : jobs) write_part(writer, job);
  writer.finish();

  WeightPlaces places;
  const auto file = SafetensorsFile::open(target);
  for (const Job& job : jobs) {
    const SafetensorsEntry& entry = *file->find(job.part.name);
    places[job.part.name] = {.dtype = job.part.dtype,
                             .dims = job.part.dims,
                             .data = {.file = kWeightsFile,
                                      .offset = static_cast<int64_t>(entry.begin),
                                      .bytes = static_cast<int64_t>(entry.bytes)}};
  }
  return places;
}

// ---- reading

struct WeightsFile::Impl {
  std::shared_ptr<const SafetensorsFile> file;
  ThreadPool& pool;
  std::map<std::string, std::shared_ptr<const Linear>> linears;
  std::map<std::string, DType> declared;  ///< of the linears, as the text had it
  std::map<std::string, std::shared_ptr<const Norm>> norms;
  std::string where;

  Tensor require(const std::string& name, DType dtype, const Shape& shape) const {
    const SafetensorsEntry* entry = file->find(name);
    if (entry != nullptr && entry->dtype == dtype && entry->dims == dims(shape)) {
      return file->tensor(name);
    }
    throw Error(ErrorCode::bad_file, {.where = where + ": weight " + name,
                                      .expected = fmt::format("{} {}", to_string(dtype), shape.to_string()),
                                      .got = entry == nullptr ? std::string("none")
                                                              : fmt::format("{} [{}]", to_string(entry->dtype),
                                                                            fmt::join(entry->dims, ", ")),
                                      .advice = "export the model again"});
  }

 private:
  static std::vector<int64_t> dims(const Shape& shape) {
    std::vector<int64_t> result;
    for (int axis = 0; axis < shape.rank(); ++axis) result.push_back(shape[axis]);
    return result;
  }
};

WeightsFile::WeightsFile(const std::filesystem::path& folder, ThreadPool& pool)
    : impl_(new Impl{.file = SafetensorsFile::open(folder / kWeightsFile),
                     .pool = pool,
                     .linears = {},
                     .declared = {},
                     .norms = {},
                     .where = (folder / kWeightsFile).string()}) {}
WeightsFile::~WeightsFile() = default;

namespace {

/// GGUF's blocks from MatMulNBits's: the inverse of write_blocks().
Tensor gguf_blocks(DType dtype, const Tensor& bytes, const Tensor& scales, int64_t rows, int64_t cols) {
  Tensor result(dtype, {rows, cols});
  const int64_t count = rows * cols / kBlockColumns;
  const auto* from = bytes.data<uint8_t>();
  const auto* factors = scales.data<float>();
  for (int64_t b = 0; b < count; ++b) {
    const uint16_t d = f16_from_f32(factors[b]);
    if (dtype == DType::Q8_0) {
      auto& block = result.data<blocks::Q8_0>()[b];
      block.d = d;
      for (int k = 0; k < 32; ++k) block.q[k] = static_cast<int8_t>(from[32 * b + k] - 128);
    } else {
      auto& block = result.data<blocks::Q4_0>()[b];
      block.d = d;
      const auto nibble = [&](int k) { return (from[16 * b + k / 2] >> (4 * (k % 2))) & 15; };
      for (int k = 0; k < 16; ++k) block.q[k] = static_cast<uint8_t>(nibble(k) | nibble(k + 16) << 4);
    }
  }
  return result;
}

}  // namespace

std::shared_ptr<const Linear> WeightsFile::linear(const std::string& name, DType dtype, int64_t rows, int64_t cols,
                                                  bool bias, bool fine_activations) {
  std::shared_ptr<const Linear>& known = impl_->linears[name];
  const bool same = known && known->out_features() == rows && known->in_features() == cols;
  if (same && impl_->declared[name] == dtype && known->bias.empty() != bias &&
      known->fine_activations == fine_activations) {
    return known;
  }
  auto made = std::make_shared<Linear>();
  made->name = name;
  made->fine_activations = fine_activations;
  const bool as_blocks = is_quantised(dtype) && impl_->file->find(name + ".blocks") != nullptr;
  if (as_blocks && (dtype == DType::Q8_0 || dtype == DType::Q4_0) && cols % kBlockColumns == 0) {
    const int64_t blocks = cols / kBlockColumns;
    const Tensor bytes = impl_->require(name + ".blocks", DType::U8, {rows, blocks, dtype == DType::Q4_0 ? 16 : 32});
    const Tensor scales = impl_->require(name + ".scales", DType::F32, {rows, blocks});
    made->matrix = PackedMatrix::pack(gguf_blocks(dtype, bytes, scales, rows, cols), impl_->pool);
  } else {
    const DType stored = is_quantised(dtype) ? DType::F32 : dtype;
    made->matrix = PackedMatrix::pack(impl_->require(name, stored, {rows, cols}), impl_->pool);
  }
  if (bias) made->bias = impl_->require(name + ".bias", DType::F32, {rows}).clone();
  impl_->declared[name] = dtype;
  return known = made;
}

std::shared_ptr<const Norm> WeightsFile::norm(const std::string& name, int64_t size) {
  std::shared_ptr<const Norm>& known = impl_->norms[name];
  if (known && known->size == size) return known;
  auto made = std::make_shared<Norm>();
  made->name = name;
  made->size = size;
  made->weight = impl_->require(name, DType::F32, {size});
  return known = made;
}

Tensor WeightsFile::vector(const std::string& name, int64_t size) {
  return impl_->require(name, DType::F32, {size});
}

}  // namespace slipring
