#include "formats/gguf_types.h"

#include <array>
#include <utility>

#include "formats/gguf.h"

namespace slipring {
namespace {

// Numbers: GGUF specification, "ggml_type".
constexpr std::array kTypes = {
    std::pair{uint32_t{0}, DType::F32},      std::pair{uint32_t{1}, DType::F16},
    std::pair{uint32_t{2}, DType::Q4_0},     std::pair{uint32_t{3}, DType::Q4_1},
    std::pair{uint32_t{6}, DType::Q5_0},     std::pair{uint32_t{7}, DType::Q5_1},
    std::pair{uint32_t{8}, DType::Q8_0},     std::pair{uint32_t{10}, DType::Q2_K},
    std::pair{uint32_t{11}, DType::Q3_K},    std::pair{uint32_t{12}, DType::Q4_K},
    std::pair{uint32_t{13}, DType::Q5_K},    std::pair{uint32_t{14}, DType::Q6_K},
    std::pair{uint32_t{18}, DType::IQ3_XXS}, std::pair{uint32_t{20}, DType::IQ4_NL},
    std::pair{uint32_t{21}, DType::IQ3_S},   std::pair{uint32_t{23}, DType::IQ4_XS},
    std::pair{uint32_t{24}, DType::I8},      std::pair{uint32_t{25}, DType::I16},
    std::pair{uint32_t{26}, DType::I32},     std::pair{uint32_t{27}, DType::I64},
    std::pair{uint32_t{28}, DType::F64},     std::pair{uint32_t{30}, DType::BF16},
    std::pair{uint32_t{39}, DType::MXFP4},   std::pair{uint32_t{22}, DType::IQ2_S},
};

constexpr std::array kUnsupported = {
    std::pair{uint32_t{9}, std::string_view("Q8_1")},     std::pair{uint32_t{15}, std::string_view("Q8_K")},
    std::pair{uint32_t{16}, std::string_view("IQ2_XXS")}, std::pair{uint32_t{17}, std::string_view("IQ2_XS")},
    std::pair{uint32_t{19}, std::string_view("IQ1_S")},   std::pair{uint32_t{29}, std::string_view("IQ1_M")},
    std::pair{uint32_t{34}, std::string_view("TQ1_0")},   std::pair{uint32_t{35}, std::string_view("TQ2_0")},
    std::pair{uint32_t{40}, std::string_view("NVFP4")},
};

}  // namespace

std::optional<DType> dtype_of_gguf_id(uint32_t id) noexcept {
  for (const auto& [number, dtype] : kTypes) {
    if (number == id) return dtype;
  }
  return std::nullopt;
}

std::optional<uint32_t> gguf_type_id(DType dtype) noexcept {
  for (const auto& [number, candidate] : kTypes) {
    if (candidate == dtype) return number;
  }
  return std::nullopt;
}

std::string_view unsupported_gguf_type(uint32_t id) noexcept {
  for (const auto& [number, name] : kUnsupported) {
    if (number == id) return name;
  }
  return {};
}

}  // namespace slipring
