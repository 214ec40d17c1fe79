#include "formats/quantise_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <memory>

#include "formats/codec.h"
#include "formats/format_error.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/mapped_file.h"
#include "kernels/thread_pool.h"

namespace slipring {
namespace {

// A task converts whole rows of about this many elements; a slice is a few tasks for each thread.
constexpr int64_t kTaskElements = int64_t{1} << 16;
constexpr int64_t kTasksPerThread = 4;

/// The largest |x|; infinity or NaN if any x is one.
float largest(const float* x, int64_t count) {
  // As integers, the magnitudes of floats order as the numbers do, with infinity and NaN on top.
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFU);
  return std::bit_cast<float>(most);
}

/// What a type holds without turning it into an infinity, or clipping it: the scales of blocks are float16.
float largest_held(DType type) {
  switch (type) {
    case DType::F32:
      return std::numeric_limits<float>::max();
    case DType::BF16:
      return 0x1.FEp127F;
    default:
      return 65504.0F;
  }
}

void check_range(float largest, DType to, std::string_view name) {
  if (!std::isfinite(largest)) {
    throw Error(ErrorCode::non_finite, {.where = "tensor " + in_quotes(name),
                                        .expected = "finite weights",
                                        .got = "a NaN or an infinity",
                                        .advice = "the source is damaged, or float16 was too narrow for it"});
  }
  if (largest <= largest_held(to)) return;
  throw Error(ErrorCode::unsupported, {.where = "tensor " + in_quotes(name),
                                       .expected = fmt::format("at most {} for {}", largest_held(to), to_string(to)),
                                       .got = fmt::format("a weight of {}", largest),
                                       .advice = "the source is damaged, or needs a wider type: BF16 or F32"});
}

/// Copies what keeps its type; float types are looked through on the way.
void append_as_it_is(TensorWriter& writer, std::string_view name, const Tensor& source) {
  if (source.dtype() == DType::F32 || source.dtype() == DType::F16 || source.dtype() == DType::BF16) {
    std::vector<float> floats(static_cast<size_t>(std::min(source.elements(), kTaskElements)));
    for (int64_t first = 0; first < source.elements(); first += kTaskElements) {
      const int64_t count = std::min(kTaskElements, source.elements() - first);
      dequantise(source.dtype(), source.span().data() + bytes_of(source.dtype(), first), count, floats.data());
      check_range(largest(floats.data(), count), DType::F32, name);
    }
  }
  writer.append(source.span());
}

std::vector<TensorFacts> facts_of(const GgufHeader& header) {
  std::vector<TensorFacts> facts;
  facts.reserve(header.tensors().size());
  for (const GgufTensor& tensor : header.tensors()) {
    facts.push_back({std::string(tensor.name), tensor.dtype, tensor.shape});
  }
  return facts;
}

int64_t layers_of(const GgufHeader& header, const std::string& where) {
  const GgufValue* architecture = header.find("general.architecture");
  const auto name = architecture == nullptr ? std::nullopt : as_text(*architecture);
  if (!name) throw_bad_file(where, "no text 'general.architecture'", "a model's GGUF file");
  const GgufValue* blocks = header.find(std::string(*name) + ".block_count");
  return blocks == nullptr ? 0 : std::clamp(as_integer(*blocks).value_or(0), int64_t{0}, int64_t{1} << 20);
}

void copy_metadata(const GgufHeader& header, const QuantisationMix& mix, GgufWriter& writer) {
  constexpr std::string_view kFileType = "general.file_type";
  constexpr std::string_view kVersion = "general.quantization_version";
  for (const GgufHeader::Entry& entry : header.entries()) {
    if (entry.key != kFileType && entry.key != kVersion) writer.copy(entry.key, entry.value);
  }
  writer.set_u32(kVersion, 2);  // of the block formats; 2 is what block_layouts.h describes
  writer.set_u32(kFileType, mix.file_type);
}

}  // namespace

std::vector<TensorChoice> QuantiseReport::substitutions() const {
  std::vector<TensorChoice> out;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(out),
               [](const TensorChoice& choice) { return choice.to != choice.wanted; });
  return out;
}

void append_converted(TensorWriter& writer, std::string_view name, const Tensor& source, DType to, ThreadPool& pool) {
  if (source.elements() == 0) return;
  if (source.dtype() == to) return append_as_it_is(writer, name, source);
  if (!can_quantise(to)) {
    throw_unsupported("tensor " + in_quotes(name), "type " + std::string(to_string(to)), "a type that can be written");
  }
  const int64_t cols = source.shape().cols();
  const int64_t rows = source.shape().rows();
  const int64_t task_rows = std::max<int64_t>(1, kTaskElements / cols);
  const int64_t slice_rows = std::min(rows, task_rows * pool.threads() * kTasksPerThread);
  const int64_t source_row_bytes = bytes_of(source.dtype(), cols);
  const int64_t row_bytes = bytes_of(to, cols);
  const auto* bytes = static_cast<const std::byte*>(source.raw());
  std::vector<std::vector<float>> scratch(static_cast<size_t>(pool.threads()));
  for (auto& floats : scratch) floats.resize(static_cast<size_t>(std::min(rows, task_rows) * cols));
  std::vector<std::byte> slice(static_cast<size_t>(slice_rows * row_bytes));
  std::vector<float> most(scratch.size(), 0.0F);  // of each worker
  for (int64_t first = 0; first < rows; first += slice_rows) {
    const int64_t count = std::min(slice_rows, rows - first);
    pool.parallel_for((count + task_rows - 1) / task_rows, [&](int64_t task, int worker) {
      const int64_t begin = task * task_rows;
      const int64_t elements = std::min(task_rows, count - begin) * cols;
      float* floats = scratch[static_cast<size_t>(worker)].data();
      dequantise(source.dtype(), bytes + (first + begin) * source_row_bytes, elements, floats);
      float& worst = most[static_cast<size_t>(worker)];
      const float here = largest(floats, elements);
      if (!(here <= worst)) worst = here;  // a NaN stays
      quantise(to, floats, elements, slice.data() + begin * row_bytes);
    });
    for (const float worst : most) check_range(worst, to, name);
    writer.append(std::span(slice).first(static_cast<size_t>(count * row_bytes)));
  }
}

QuantiseReport quantise_model(const std::filesystem::path& in, const std::filesystem::path& out, std::string_view type,
                              const QuantiseOptions& options) {
  const QuantisationMix& mix = find_mix(type);
  refuse_to_replace(out, in);
  const auto file = MappedFile::open(in);
  const GgufHeader header = GgufHeader::parse(file->bytes(), in.string());
  QuantiseReport report;
  report.bytes_in = static_cast<int64_t>(file->bytes().size());
  report.tensors = plan_quantisation(mix, facts_of(header), layers_of(header, in.string()));

  ThreadPool pool(options.threads);
  GgufWriter writer(out);
  copy_metadata(header, mix, writer);
  int64_t total = 0;
  for (size_t i = 0; i < report.tensors.size(); ++i) {
    const GgufTensor& tensor = header.tensors()[i];
    writer.declare(report.tensors[i].name, report.tensors[i].to, tensor.shape);
    report.bytes_out += bytes_of(report.tensors[i].to, tensor.shape.elements());
    total += static_cast<int64_t>(tensor.bytes);
  }
  int64_t done = 0;
  for (size_t i = 0; i < report.tensors.size(); ++i) {
    const GgufTensor& place = header.tensors()[i];
    file->check_size();
    const Tensor source = Tensor::view(place.dtype, place.shape, file->bytes().data() + place.begin, file);
    append_converted(writer, report.tensors[i].name, source, report.tensors[i].to, pool);
    file->release(source.raw(), source.bytes());
    done += static_cast<int64_t>(place.bytes);
    if (options.progress) options.progress(done, total, report.tensors[i].name);
  }
  writer.finish();
  return report;
}

}  // namespace slipring
