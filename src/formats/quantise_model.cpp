#include "formats/quantise_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
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

bool all_finite(const float* x, int64_t count) {
  // The sum of differences to itself is 0 for finite numbers and NaN otherwise; it needs no branch an element.
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += x[i] - x[i];
  return sum == 0;
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
  if (source.dtype() == to) {
    writer.append(source.span());
    return;
  }
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
  std::atomic<bool> finite{true};
  for (int64_t first = 0; first < rows; first += slice_rows) {
    const int64_t count = std::min(slice_rows, rows - first);
    pool.parallel_for((count + task_rows - 1) / task_rows, [&](int64_t task, int worker) {
      const int64_t begin = task * task_rows;
      const int64_t elements = std::min(task_rows, count - begin) * cols;
      float* floats = scratch[static_cast<size_t>(worker)].data();
      dequantise(source.dtype(), bytes + (first + begin) * source_row_bytes, elements, floats);
      if (!all_finite(floats, elements)) finite = false;
      quantise(to, floats, elements, slice.data() + begin * row_bytes);
    });
    if (!finite) {
      throw Error(ErrorCode::non_finite, {.where = "tensor " + in_quotes(name),
                                          .expected = "finite weights",
                                          .got = "a NaN or an infinity",
                                          .advice = "the source is damaged, or float16 was too narrow for it"});
    }
    writer.append(std::span(slice).first(static_cast<size_t>(count * row_bytes)));
  }
}

QuantiseReport quantise_model(const std::filesystem::path& in, const std::filesystem::path& out, std::string_view type,
                              const QuantiseOptions& options) {
  const QuantisationMix& mix = find_mix(type);
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
