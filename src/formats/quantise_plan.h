// Which type each tensor of a quantised model gets.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <slipring/tensor.h>

namespace slipring {

/// What a user asks for by one name: a type for the matrices, and rules for those that matter more.
/// "_M" gives the value and down projections of some layers more bits, "_S" those of fewer; a bare K name is its "_M".
/// The rules are llama.cpp's, so that a file has the size people expect of its name.
struct QuantisationMix {
  enum class Extra : uint8_t { none, some, more };
  std::string_view name;
  DType base;
  Extra extra;
  uint32_t file_type;  ///< GGUF's "general.file_type"
};

/// Known mixes: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K_S, Q4_K_M, Q5_K_S, Q5_K_M, Q6_K.
std::span<const QuantisationMix> quantisation_mixes() noexcept;
/// By name in any letter case; "Q4_K" and "Q5_K" mean their _M mix.
/// @throws Error{invalid_argument} listing the names
const QuantisationMix& find_mix(std::string_view name);

/// A tensor to be placed: its name in GGUF and its shape.
struct TensorFacts {
  std::string name;
  DType dtype;
  Shape shape;
};

struct TensorChoice {
  std::string name;
  DType from;
  DType to;
  DType wanted;  ///< what the mix asked for; differs from `to` where the row length does not fit its blocks
};

/// Chooses for every tensor, in order. Matrices whose name ends in ".weight" are quantised; vectors, norms, routers,
/// biases and integer tensors stay as they are (F16 and BF16 vectors become F32). Where rows are not whole blocks of
/// 256, Q4_K becomes Q5_0, Q5_K becomes Q5_1 and Q6_K becomes Q8_0; where not even of 32, F16.
/// @param layers number of layers, for the rules that look at a layer's place
std::vector<TensorChoice> plan_quantisation(const QuantisationMix& mix, std::span<const TensorFacts> tensors,
                                            int64_t layers);

}  // namespace slipring
