#include "models/gpt_oss_experts.h"

#include <slipring/error.h>

#include "formats/block_layouts.h"

namespace slipring {
namespace {

constexpr int64_t kBlock = 32;       // elements of one MXFP4 block
constexpr int64_t kBlockBytes = 16;  // two elements a byte

/// Rows first, first + step, ... of the outputs of one expert.
struct Outputs {
  int64_t first = 0;
  int64_t step = 1;
  int64_t count = 0;
};

template <class T>
void transpose(const Tensor& source, const Outputs& outputs, Tensor& result) {
  const int64_t rows = source.shape()[0];
  const int64_t cols = source.shape()[1];
  const T* from = source.data<T>();
  T* to = result.data<T>();
  for (int64_t j = 0; j < outputs.count; ++j) {
    for (int64_t i = 0; i < rows; ++i) to[j * rows + i] = from[i * cols + outputs.first + j * outputs.step];
  }
}

/// [in, out] floats -> [outputs, in] of the same type.
Tensor from_floats(const Tensor& source, const Outputs& outputs) {
  Tensor result(source.dtype(), Shape{outputs.count, source.shape()[0]});
  if (info(source.dtype()).block_bytes == 4) {
    transpose<uint32_t>(source, outputs, result);
  } else {
    transpose<uint16_t>(source, outputs, result);
  }
  return result;
}

/// Blocks [out, in / 32, 16] and scales [out, in / 32] -> MXFP4 as GGUF has it [outputs, in]. Here neighbours share a
/// byte, the first one low; there, elements 16 apart do.
Tensor from_blocks(const Tensor& blocks, const Tensor& scales, const Outputs& outputs) {
  const int64_t per_row = blocks.shape()[1];
  Tensor result(DType::MXFP4, Shape{outputs.count, per_row * kBlock});
  auto* to = result.data<blocks::MXFP4>();
  for (int64_t j = 0; j < outputs.count; ++j) {
    const int64_t row = outputs.first + j * outputs.step;
    for (int64_t b = 0; b < per_row; ++b, ++to) {
      const uint8_t* pairs = blocks.data<uint8_t>() + (row * per_row + b) * kBlockBytes;
      const auto element = [&](int k) { return (pairs[k / 2] >> (4 * (k % 2))) & 15; };
      to->e = scales.data<uint8_t>()[row * per_row + b];
      for (int k = 0; k < kBlockBytes; ++k) to->q[k] = static_cast<uint8_t>(element(k) | element(k + 16) << 4);
    }
  }
  return result;
}

/// Hugging Face's fused tensors of one layer: `name` is "gate_up_proj" or "down_proj".
class Fused {
 public:
  Fused(WeightLoader& load, const std::string& name, int64_t experts, int64_t in, int64_t out, int64_t layer)
      : load_(load), name_("layers.{}.mlp.experts." + name), layer_(layer) {
    const std::string blocks = name_ + "_blocks";
    const std::string scales = name_ + "_scales";
    if (!load.find({blocks, {}}, layer).empty()) {
      if (in % kBlock != 0) unsound(blocks, "rows of whole blocks of 32", std::to_string(in) + " elements");
      blocks_ = load.require({blocks, {}}, Shape{experts, out, in / kBlock, kBlockBytes}, layer);
      scales_ = load.require({scales, {}}, Shape{experts, out, in / kBlock}, layer);
      if (blocks_.dtype() != DType::U8 || scales_.dtype() != DType::U8) {
        unsound(blocks, "type U8 for blocks and scales", std::string(to_string(blocks_.dtype())));
      }
    } else {
      floats_ = load.require({name_, {}}, Shape{experts, in, out}, layer);
      const DType dtype = floats_.dtype();
      if (dtype != DType::F32 && dtype != DType::F16 && dtype != DType::BF16) {
        unsound(name_, "F32, F16 or BF16", std::string(to_string(dtype)));
      }
    }
    bias_ = load.vector({name_ + "_bias", {}}, Shape{experts, out}, layer);
  }

  Linear linear(int64_t expert, const char* part, const Outputs& outputs) {
    const Tensor matrix = blocks_.empty() ? from_floats(part_of(floats_, expert), outputs)
                                          : from_blocks(part_of(blocks_, expert), part_of(scales_, expert), outputs);
    Linear result =
        load_.pack(load_.full_name({name_, {}}, layer_) + "." + std::to_string(expert) + "." + part, matrix);
    result.bias = Tensor(DType::F32, Shape{outputs.count});
    const Tensor biases = part_of(bias_, expert);
    for (int64_t j = 0; j < outputs.count; ++j) {
      result.bias.data<float>()[j] = biases.data<float>()[outputs.first + j * outputs.step];
    }
    return result;
  }

  void release() const {
    for (const Tensor* tensor : {&floats_, &blocks_, &scales_}) {
      if (!tensor->empty()) load_.files().release(*tensor);
    }
  }

 private:
  [[noreturn]] void unsound(const std::string& name, std::string expected, std::string got) const {
    throw Error(ErrorCode::bad_file,
                {.where = load_.files().path().string() + ": tensor " + load_.full_name({name, {}}, layer_),
                 .expected = std::move(expected),
                 .got = std::move(got),
                 .advice = {}});
  }

  WeightLoader& load_;
  std::string name_;
  int64_t layer_;
  Tensor floats_, blocks_, scales_, bias_;
};

std::vector<Expert> from_hf(WeightLoader& load, const MixtureSizes& sizes, int64_t layer) {
  Fused gate_up(load, "gate_up_proj", sizes.experts, sizes.hidden, 2 * sizes.inner, layer);
  Fused down(load, "down_proj", sizes.experts, sizes.inner, sizes.hidden, layer);
  std::vector<Expert> experts;
  for (int64_t e = 0; e < sizes.experts; ++e) {
    experts.push_back({.gate = gate_up.linear(e, "gate", {.first = 0, .step = 2, .count = sizes.inner}),
                       .up = gate_up.linear(e, "up", {.first = 1, .step = 2, .count = sizes.inner}),
                       .down = down.linear(e, "down", {.first = 0, .step = 1, .count = sizes.hidden})});
  }
  gate_up.release();
  down.release();
  return experts;
}

std::vector<Expert> from_gguf(WeightLoader& load, const MixtureSizes& sizes, int64_t layer) {
  std::vector<Expert> experts(static_cast<size_t>(sizes.experts));
  const auto fill = [&](const std::string& name, int64_t out, int64_t in, Linear Expert::*map) {
    const Tensor weights = load.require({{}, name + ".weight"}, Shape{sizes.experts, out, in}, layer);
    const Tensor biases = load.vector({{}, name + ".bias"}, Shape{sizes.experts, out}, layer);
    for (int64_t e = 0; e < sizes.experts; ++e) {
      Linear& linear = experts[static_cast<size_t>(e)].*map;
      linear = load.pack(load.full_name({{}, name}, layer) + "." + std::to_string(e), part_of(weights, e));
      linear.bias = part_of(biases, e).clone();
    }
  };
  fill("blk.{}.ffn_gate_exps", sizes.inner, sizes.hidden, &Expert::gate);
  fill("blk.{}.ffn_up_exps", sizes.inner, sizes.hidden, &Expert::up);
  fill("blk.{}.ffn_down_exps", sizes.hidden, sizes.inner, &Expert::down);
  return experts;
}

}  // namespace

std::vector<Expert> load_experts(WeightLoader& load, const MixtureSizes& sizes, int64_t layer) {
  return load.files().is_gguf() ? from_gguf(load, sizes, layer) : from_hf(load, sizes, layer);
}

}  // namespace slipring
