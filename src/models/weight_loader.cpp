#include "models/weight_loader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <slipring/error.h>

#include "formats/format_error.h"

namespace slipring {
namespace {

std::string layer_name(std::string_view pattern, int64_t layer) {
  std::string name(pattern);
  if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, std::to_string(layer));
  return name;
}

// What stands in front of the text model's tensors.
std::string hf_prefix(const ModelFiles& files) {
  if (files.is_gguf()) return {};
  for (const char* candidate : {"model.", "model.language_model.", "language_model.model.", ""}) {
    const std::string name = candidate + std::string(WeightLoader::kEmbedding.hf);
    if (!files.find_tensor({name, {}}).empty()) return candidate;
  }
  return "model.";
}

}  // namespace

WeightLoader::WeightLoader(const ModelFiles& files, ThreadPool& pool)
    : files_(files), pool_(pool), prefix_(hf_prefix(files)) {}

Tensor WeightLoader::embedding_table(const ModelFiles& files) {
  const std::string name = hf_prefix(files) + std::string(kEmbedding.hf);
  return files.find_tensor({name, kEmbedding.gguf});
}

std::string WeightLoader::full_name(Names name, int64_t layer) const {
  if (files_.is_gguf()) return layer_name(name.gguf, layer);
  if (name.hf.starts_with('/')) return layer_name(name.hf.substr(1), layer);
  return prefix_ + layer_name(name.hf, layer);
}

Tensor WeightLoader::find(Names name, int64_t layer) const {
  if ((files_.is_gguf() ? name.gguf : name.hf).empty()) return {};
  const std::string full = full_name(name, layer);
  used_.insert(full);
  return files_.find_tensor({full, full});
}

Tensor WeightLoader::require(Names name, Shape shape, int64_t layer) const {
  const std::string full = full_name(name, layer);
  used_.insert(full);
  return files_.require_tensor({full, full}, shape);
}

void WeightLoader::check_all_used() const {
  const std::string layers = files_.is_gguf() ? "blk." : prefix_ + "layers.";
  for (const std::string& name : files_.tensor_names()) {
    // Old checkpoints hold the frequencies, which follow from the config.
    if (!name.starts_with(layers) || used_.contains(name) || name.ends_with("rotary_emb.inv_freq")) continue;
    throw Error(ErrorCode::bad_file, {.where = files_.path().string() + ": tensor " + in_quotes(name),
                                      .expected = "only weights that this family has, in as many layers as it says",
                                      .got = "one that would not be used",
                                      .advice = "the file is damaged, or a variant that is not supported"});
  }
}

// FNV-1a. Sampled, so that loading stays as fast as the packing; other training gives other bits everywhere.
void WeightLoader::note(const std::string& name, const Tensor& tensor) noexcept {
  const auto add = [this](std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) fingerprint_ = (fingerprint_ ^ std::to_integer<uint64_t>(b)) * 0x100000001b3ULL;
  };
  add(std::as_bytes(std::span(name)));
  const auto dtype = static_cast<std::byte>(tensor.dtype());
  add({&dtype, 1});
  const int64_t elements = tensor.elements();
  add(std::as_bytes(std::span(&elements, 1)));
  const std::span<const std::byte> bytes = tensor.span();
  const size_t sample = std::min<size_t>(bytes.size(), 128);
  add(bytes.first(sample));
  add(bytes.subspan((bytes.size() - sample) / 2, sample));
  add(bytes.last(sample));
}

Linear WeightLoader::pack(const std::string& name, const Tensor& tensor) {
  note(name, tensor);
  Linear linear;
  linear.name = name;
  try {
    linear.matrix = PackedMatrix::pack(tensor, pool_, [this](const Tensor& rows) { files_.release(rows); });
  } catch (const Error& error) {
    ErrorInfo info = error.info();
    info.where = files_.path().string() + ": tensor " + in_quotes(name) + ": " + info.where;
    throw Error(error.code(), std::move(info));
  }
  bytes_ += linear.matrix.bytes();
  files_.release(tensor);
  return linear;
}

Linear WeightLoader::linear(Names name, int64_t out_features, int64_t in_features, int64_t layer) {
  const Tensor tensor = require(name, Shape{out_features, in_features}, layer);
  return pack(full_name(name, layer), tensor);
}

Linear WeightLoader::linear_rows(Names name, int64_t whole, int64_t first, int64_t out_features, int64_t in_features,
                                 int64_t layer) {
  const Tensor tensor = require(name, Shape{whole, in_features}, layer);
  const Shape shape{out_features, in_features};
  const auto* bytes = static_cast<const std::byte*>(tensor.raw()) + first * bytes_of(tensor.dtype(), in_features);
  const std::string part = full_name(name, layer) + ".rows_" + std::to_string(first);
  return pack(part, Tensor::view(tensor.dtype(), shape, bytes));
}

Tensor part_of(const Tensor& tensor, int64_t index) {
  std::vector<int64_t> dims;
  for (int axis = 1; axis < tensor.shape().rank(); ++axis) dims.push_back(tensor.shape()[axis]);
  const Shape shape{std::span<const int64_t>(dims)};
  const auto* bytes = static_cast<const std::byte*>(tensor.raw()) + index * bytes_of(tensor.dtype(), shape.elements());
  return Tensor::view(tensor.dtype(), shape, bytes);
}

Linear WeightLoader::linear_with_bias(Names name, Names bias, int64_t out_features, int64_t in_features,
                                      int64_t layer) {
  Linear result = linear(name, out_features, in_features, layer);
  if (!find(bias, layer).empty()) result.bias = vector(bias, Shape{out_features}, layer);
  return result;
}

Linear WeightLoader::optional_linear(Names name, int64_t out_features, int64_t in_features, int64_t layer) {
  if (find(name, layer).empty()) return {};
  return linear(name, out_features, in_features, layer);
}

Tensor WeightLoader::vector(Names name, Shape shape, int64_t layer) {
  const Tensor source = require(name, shape, layer);
  Tensor result(DType::F32, shape);
  auto* out = result.data<float>();
  const int64_t count = shape.elements();
  switch (source.dtype()) {
    case DType::F32:
      std::memcpy(out, source.raw(), static_cast<size_t>(count) * sizeof(float));
      break;
    case DType::F16:
      f16_to_f32(source.data<uint16_t>(), count, out);
      break;
    case DType::BF16:
      bf16_to_f32(source.data<uint16_t>(), count, out);
      break;
    default:
      throw Error(ErrorCode::bad_file, {.where = files_.path().string() + ": tensor " + full_name(name, layer),
                                        .expected = "F32, F16 or BF16",
                                        .got = "type " + std::string(to_string(source.dtype())),
                                        .advice = "write the file again with this tensor unquantised"});
  }
  if (!std::all_of(out, out + count, [](float x) { return std::isfinite(x); })) {
    throw Error(ErrorCode::bad_file, {.where = files_.path().string() + ": tensor " + full_name(name, layer),
                                      .expected = "finite weights",
                                      .got = "a NaN or an infinity",
                                      .advice = "fetch or convert the file again"});
  }
  bytes_ += result.bytes();
  note(full_name(name, layer), source);
  files_.release(source);
  return result;
}

Norm WeightLoader::norm(Names name, int64_t size, double eps, int64_t layer, float offset) {
  Norm norm = plain_norm(size, eps);
  norm.name = full_name(name, layer);
  norm.weight = vector(name, Shape{size}, layer);
  if (offset != 0.0F) {
    auto* weight = norm.weight.data<float>();
    for (int64_t i = 0; i < size; ++i) weight[i] += offset;
  }
  return norm;
}

Norm WeightLoader::plain_norm(int64_t size, double eps) {
  Norm norm;
  norm.size = size;
  norm.eps = static_cast<float>(eps);
  return norm;
}

}  // namespace slipring
