// Element types of tensors, plain and block-quantised, with the facts that every reader of them needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace slipring {

/// Plain types hold one element a block. Quantised types are GGUF's, same names, same bytes.
enum class DType : uint8_t {
  F32,
  F16,
  BF16,
  F64,
  I8,
  I16,
  I32,
  I64,
  U8,
  Bool,
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ4_NL,
  IQ4_XS,
  IQ3_S,
  IQ3_XXS,
  MXFP4,
  IQ2_S,  ///< part of published IQ3_XXS files
};

/// Facts of one type.
struct DTypeInfo {
  std::string_view name;  ///< as GGUF and safetensors spell it, upper case
  int block_elements;     ///< elements a block: 1 for plain types, 32 or 256 for quantised ones
  int block_bytes;        ///< bytes a block
};

/// Facts of `dtype`; never fails for a valid enumerator.
const DTypeInfo& info(DType dtype) noexcept;
inline std::string_view to_string(DType dtype) noexcept {
  return info(dtype).name;
}
inline bool is_quantised(DType dtype) noexcept {
  return info(dtype).block_elements > 1;
}

/// The type of that name in any letter case ("q4_k", "F16"), or nothing.
std::optional<DType> dtype_from_name(std::string_view name) noexcept;

/// Bytes of `elements` elements. @pre elements is a multiple of block_elements.
inline int64_t bytes_of(DType dtype, int64_t elements) noexcept {
  const DTypeInfo& facts = info(dtype);
  return elements / facts.block_elements * facts.block_bytes;
}

}  // namespace slipring
