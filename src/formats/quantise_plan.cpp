#include "formats/quantise_plan.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <fmt/format.h>
#include <optional>

#include "formats/format_error.h"

namespace slipring {
namespace {

using Extra = QuantisationMix::Extra;

// File type numbers: GGUF specification, "general.file_type".
constexpr std::array kMixes = {
    QuantisationMix{"F32", DType::F32, Extra::none, 0},      QuantisationMix{"F16", DType::F16, Extra::none, 1},
    QuantisationMix{"BF16", DType::BF16, Extra::none, 32},   QuantisationMix{"Q8_0", DType::Q8_0, Extra::none, 7},
    QuantisationMix{"Q4_0", DType::Q4_0, Extra::none, 2},    QuantisationMix{"Q4_1", DType::Q4_1, Extra::none, 3},
    QuantisationMix{"Q5_0", DType::Q5_0, Extra::none, 8},    QuantisationMix{"Q5_1", DType::Q5_1, Extra::none, 9},
    QuantisationMix{"Q4_K_S", DType::Q4_K, Extra::some, 14}, QuantisationMix{"Q4_K_M", DType::Q4_K, Extra::more, 15},
    QuantisationMix{"Q5_K_S", DType::Q5_K, Extra::none, 16}, QuantisationMix{"Q5_K_M", DType::Q5_K, Extra::more, 17},
    QuantisationMix{"Q6_K", DType::Q6_K, Extra::none, 18},
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The N of "blk.N.", if there is one.
std::optional<int64_t> layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
  return layer;
}

bool is_float(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::F64;
}

bool stays_plain(const TensorFacts& tensor) {
  // Small, and the model is sensitive to them: norms, expert routers, positions, convolutions.
  constexpr std::array<std::string_view, 5> kKept = {"_norm.weight", "ffn_gate_inp", "position_embd", "token_types",
                                                     "conv1d"};
  if (tensor.shape.rank() < 2 || !tensor.name.ends_with(".weight")) return true;
  return std::any_of(kKept.begin(), kKept.end(), [&](std::string_view part) { return contains(tensor.name, part); });
}

// The first and last eighth of the layers, and every third one between.
bool more_bits_here(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

bool is_k_type(DType dtype) {
  return info(dtype).block_elements == 256;
}

// `output_name`: the tensor that makes the logits.
DType wanted_type(const QuantisationMix& mix, const TensorFacts& tensor, std::string_view output_name, int64_t layers) {
  if (!is_quantised(mix.base)) return mix.base;
  if (tensor.name == output_name) {
    if (mix.base == DType::Q8_0) return DType::Q8_0;
    return DType::Q6_K;
  }
  const auto layer = layer_of(tensor.name);
  if (!layer || !is_k_type(mix.base)) return mix.base;
  const bool value = contains(tensor.name, "attn_v.");
  const bool down = contains(tensor.name, "ffn_down");
  const bool joined = contains(tensor.name, "attn_qkv.");
  if (mix.extra == Extra::more) {
    if ((value || down) && more_bits_here(*layer, layers)) return DType::Q6_K;
    if (joined) return mix.base == DType::Q4_K ? DType::Q5_K : DType::Q6_K;
  }
  if (mix.extra == Extra::some) {
    if (value && *layer < 4) return DType::Q5_K;
    if (down && *layer < layers / 8) return DType::Q5_K;
  }
  return mix.base;
}

DType fitting_type(DType wanted, int64_t cols) {
  if (cols % info(wanted).block_elements == 0) return wanted;
  DType smaller = wanted;
  if (wanted == DType::Q4_K) smaller = DType::Q5_0;
  if (wanted == DType::Q5_K) smaller = DType::Q5_1;
  if (wanted == DType::Q6_K) smaller = DType::Q8_0;
  return cols % info(smaller).block_elements == 0 ? smaller : DType::F16;
}

}  // namespace

std::span<const QuantisationMix> quantisation_mixes() noexcept {
  return kMixes;
}

const QuantisationMix& find_mix(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (upper == "Q4_K" || upper == "Q5_K") upper += "_M";
  std::string names;
  for (const QuantisationMix& mix : kMixes) {
    if (mix.name == upper) return mix;
    names += (names.empty() ? "" : ", ") + std::string(mix.name);
  }
  throw Error(ErrorCode::invalid_argument,
              {.where = "quantisation type", .expected = names, .got = in_quotes(name), .advice = {}});
}

std::vector<TensorChoice> plan_quantisation(const QuantisationMix& mix, std::span<const TensorFacts> tensors,
                                            int64_t layers) {
  constexpr std::string_view kOutput = "output.weight";
  const bool own_output =
      std::any_of(tensors.begin(), tensors.end(), [&](const TensorFacts& tensor) { return tensor.name == kOutput; });
  const std::string_view output_name = own_output ? kOutput : "token_embd.weight";
  std::vector<TensorChoice> choices;
  choices.reserve(tensors.size());
  for (const TensorFacts& tensor : tensors) {
    TensorChoice choice{tensor.name, tensor.dtype, tensor.dtype, tensor.dtype};
    if (stays_plain(tensor)) {
      if (is_float(tensor.dtype)) choice.to = choice.wanted = DType::F32;
    } else if (is_float(tensor.dtype) || is_quantised(tensor.dtype)) {
      choice.wanted = wanted_type(mix, tensor, output_name, layers);
      choice.to = fitting_type(choice.wanted, tensor.shape.cols());
    }
    choices.push_back(std::move(choice));
  }
  return choices;
}

}  // namespace slipring
