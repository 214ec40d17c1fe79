// Tensor type numbers of GGUF ("ggml_type"), for the reader and the writer.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <slipring/dtype.h>

namespace slipring {

std::optional<DType> dtype_of_gguf_id(uint32_t id) noexcept;
/// Name of a type that the format defines and slipring does not read; empty for numbers that mean nothing.
std::string_view unsupported_gguf_type(uint32_t id) noexcept;

}  // namespace slipring
