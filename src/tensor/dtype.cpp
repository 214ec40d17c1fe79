#include <array>
#include <cctype>

#include <slipring/dtype.h>

namespace slipring {
namespace {

// In the order of the enumerators. Block sizes: GGUF specification, "ggml_type".
constexpr std::array<DTypeInfo, 26> kInfo = {{
    {"F32", 1, 4},      {"F16", 1, 2},        {"BF16", 1, 2},      {"F64", 1, 8},        {"I8", 1, 1},
    {"I16", 1, 2},      {"I32", 1, 4},        {"I64", 1, 8},       {"U8", 1, 1},         {"BOOL", 1, 1},
    {"Q4_0", 32, 18},   {"Q4_1", 32, 20},     {"Q5_0", 32, 22},    {"Q5_1", 32, 24},     {"Q8_0", 32, 34},
    {"Q2_K", 256, 84},  {"Q3_K", 256, 110},   {"Q4_K", 256, 144},  {"Q5_K", 256, 176},   {"Q6_K", 256, 210},
    {"IQ4_NL", 32, 18}, {"IQ4_XS", 256, 136}, {"IQ3_S", 256, 110}, {"IQ3_XXS", 256, 98}, {"MXFP4", 32, 17},
    {"IQ2_S", 256, 82},
}};
static_assert(kInfo.size() == static_cast<size_t>(DType::IQ2_S) + 1);

bool same_ignoring_case(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::toupper(static_cast<unsigned char>(a[i])) != std::toupper(static_cast<unsigned char>(b[i]))) return false;
  }
  return true;
}

}  // namespace

const DTypeInfo& info(DType dtype) noexcept {
  return kInfo[static_cast<size_t>(dtype)];
}

std::optional<DType> dtype_from_name(std::string_view name) noexcept {
  for (size_t i = 0; i < kInfo.size(); ++i) {
    if (same_ignoring_case(kInfo[i].name, name)) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace slipring
