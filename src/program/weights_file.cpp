#include "program/weights_file.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include <slipring/error.h>

#include "formats/safetensors.h"
#include "kernels/packed_block.h"
#include "program/block_format.h"
#include "program/gguf_bytes.h"
#include "tensor/half.h"

namespace slipring {
namespace {

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
    for (const Constant& constant : program->constants) {
      for (WeightPart& part : weight_parts(constant)) {
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

/// Calls `take` with each group of a quantised matrix, row after row.
template <class Take>
void for_each_group(const PackedMatrix& matrix, const Take& take) {
  const BlockCodec codec(matrix.dtype());
  const PackedLayout& layout = *layout_of(matrix.dtype());
  SourceBlock block{};
  for (int64_t row = 0; row < matrix.rows(); ++row) {
    for (int64_t i = 0; i < codec.format().groups(matrix.cols()); ++i) {
      unpack_block(layout, matrix.tile(row / kTileRows), matrix.cols(), i, static_cast<int>(row % kTileRows), block);
      take(row, codec.to_file(block));
    }
  }
}

/// One part of a quantised matrix; `kind` is what its name ends with.
void write_group_part(SafetensorsWriter& writer, const PackedMatrix& matrix, std::string_view kind) {
  const BlockFormat format = *block_format(matrix.dtype());
  const auto subs = static_cast<size_t>(format.group / format.size);
  std::vector<uint8_t> row;
  const auto add = [&row](const void* from, size_t bytes) {
    const auto* first = static_cast<const uint8_t*>(from);
    row.insert(row.end(), first, first + bytes);
  };
  int64_t current = 0;
  for_each_group(matrix, [&](int64_t index, const BlockGroup& group) {
    if (index != current) {
      append(writer, row);
      row.clear();
      current = index;
    }
    if (kind == ".blocks") {
      const auto& e = group.elements;
      for (size_t k = 0; k < static_cast<size_t>(format.group); k += format.bits == 4 ? 2 : 1) {
        row.push_back(format.bits == 4 ? static_cast<uint8_t>(e[k] | e[k + 1] << 4) : e[k]);
      }
    } else if (kind == ".d" && format.wide_d) {
      add(&group.d, sizeof(float));
    } else if (kind == ".d") {
      const uint16_t half = f16_from_f32(group.d);
      add(&half, sizeof(half));
    } else if (kind == ".dmin") {
      add(&group.dmin, sizeof(group.dmin));
    } else {
      add(kind == ".s" ? group.s.data() : group.m.data(), subs);
    }
  });
  append(writer, row);
}

void write_part(SafetensorsWriter& writer, const Job& job) {
  const WeightPart& part = job.part;
  if (const auto* norm = std::get_if<std::shared_ptr<const Norm>>(&job.constant->weight)) {
    return writer.append((*norm)->weight.span());
  }
  if (const auto* tensor = std::get_if<Tensor>(&job.constant->weight)) return writer.append(tensor->span());
  const Linear& linear = *std::get<std::shared_ptr<const Linear>>(job.constant->weight);
  const std::string_view kind = std::string_view(part.name).substr(job.constant->name.size());
  if (kind.empty()) return write_rows(writer, linear.matrix, part.dtype);
  if (kind == ".bias") return writer.append(linear.bias.span());
  write_group_part(writer, linear.matrix, kind);
}

}  // namespace

WeightPlaces write_weights(std::span<const Program* const> programs, SafetensorsWriter& writer) {
  const std::vector<Job> jobs = collect(programs);
  for (const Job& job : jobs) {
    writer.declare(job.part.name, job.part.dtype, Shape(std::span<const int64_t>(job.part.dims)));
  }
  for (const Job& job : jobs) write_part(writer, job);
  writer.complete();

  WeightPlaces places;
  const auto file = SafetensorsFile::open(writer.completed());
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

/// The parts of one quantised matrix, as the file has them.
struct Parts {
  Tensor blocks, d, s, dmin, m;
};

/// Group `index` of the matrix, counted over all rows.
BlockGroup read_group(const BlockFormat& format, const Parts& parts, int64_t index) {
  BlockGroup group{};
  const int64_t subs = format.group / format.size;
  const uint8_t* bytes = parts.blocks.data<uint8_t>() + index * subs * format.block_bytes();
  for (size_t k = 0; k < static_cast<size_t>(format.group); ++k) {
    group.elements[k] = format.bits == 4 ? static_cast<uint8_t>(bytes[k / 2] >> (4 * (k % 2)) & 15) : bytes[k];
  }
  group.d = format.wide_d ? parts.d.data<float>()[index] : f32_from_f16(parts.d.data<uint16_t>()[index]);
  if (format.minima) group.dmin = parts.dmin.data<uint16_t>()[index];
  for (int64_t i = 0; i < subs; ++i) {
    if (format.sub_scales) group.s[static_cast<size_t>(i)] = parts.s.data<int8_t>()[index * subs + i];
    if (format.sub_minima) group.m[static_cast<size_t>(i)] = parts.m.data<int8_t>()[index * subs + i];
  }
  return group;
}

/// The matrix as GGUF has it; as float32 where a type's codewords are not looked for.
Tensor gguf_matrix(DType dtype, const Parts& parts, int64_t rows, int64_t cols) {
  const BlockCodec codec(dtype);
  const BlockFormat& format = codec.format();
  const bool as_floats = !has_gguf_bytes(dtype);
  Tensor result(as_floats ? DType::F32 : dtype, {rows, cols});
  for (int64_t i = 0; i < rows * format.groups(cols); ++i) {
    const BlockGroup group = read_group(format, parts, i);
    const SourceBlock block = codec.from_file(group);
    if (!as_floats) {
      write_gguf_bytes(dtype, block, result.data<uint8_t>() + i * info(dtype).block_bytes);
      continue;
    }
    float* to = result.data<float>() + i * format.group;
    for (int k = 0; k < format.group; ++k) {
      const float scale = group.d * static_cast<float>(group.s[static_cast<size_t>(k / format.size)]);
      to[k] = scale * static_cast<float>(group.elements[static_cast<size_t>(k)] - format.zero());
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
  // Packed once at most, so that no text can ask for more memory than the weights themselves take.
  if (known) {
    throw Error(ErrorCode::bad_file, {.where = impl_->where + ": weight " + name,
                                      .expected = "one use of it, or the same one each time",
                                      .got = "another type, shape or bias than before",
                                      .advice = "export the model again"});
  }
  auto made = std::make_shared<Linear>();
  made->name = name;
  made->fine_activations = fine_activations;
  if (const auto format = block_format(dtype)) {
    const auto fail = [&](std::string expected, std::string got) {
      throw Error(ErrorCode::bad_file, {.where = impl_->where + ": weight " + name,
                                        .expected = std::move(expected),
                                        .got = std::move(got),
                                        .advice = "export the model again"});
    };
    if (cols % format->group != 0) {
      fail(fmt::format("rows of whole groups of {}", format->group), fmt::format("{} columns", cols));
    }
    const int64_t blocks = format->blocks(cols);
    const int64_t groups = format->groups(cols);
    const auto part = [&](const char* kind, DType type, const Shape& shape) {
      return impl_->require(name + kind, type, shape);
    };
    Parts parts;
    parts.blocks = part(".blocks", DType::U8, {rows, blocks, format->block_bytes()});
    parts.d = part(".d", format->wide_d ? DType::F32 : DType::F16, {rows, groups});
    if (format->sub_scales) parts.s = part(".s", DType::I8, {rows, blocks});
    if (format->minima) parts.dmin = part(".dmin", DType::F16, {rows, groups});
    if (format->sub_minima) parts.m = part(".m", DType::I8, {rows, blocks});
    made->matrix = PackedMatrix::pack(gguf_matrix(dtype, parts, rows, cols), impl_->pool);
  } else {
    made->matrix = PackedMatrix::pack(impl_->require(name, dtype, {rows, cols}), impl_->pool);
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
