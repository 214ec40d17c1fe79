#include "formats/codec.h"

#include <cstring>

#include <slipring/error.h>

#include "formats/codec_families.h"
#include "tensor/half.h"

namespace slipring {
namespace {

template <class Block>
void decode_all(DType dtype, const void* blocks, int64_t count, float* out) {
  const int elements = info(dtype).block_elements;
  const auto* block = static_cast<const Block*>(blocks);
  for (int64_t i = 0; i < count; i += elements) decode(*block++, out + i);
}

template <class Block>
void encode_all(DType dtype, const float* x, int64_t count, void* blocks) {
  const int elements = info(dtype).block_elements;
  auto* block = static_cast<Block*>(blocks);
  for (int64_t i = 0; i < count; i += elements) encode(x + i, *block++);
}

[[noreturn]] void throw_no_codec(DType dtype, const char* expected) {
  throw Error(
      ErrorCode::unsupported,
      {.where = "block codec", .expected = expected, .got = "type " + std::string(to_string(dtype)), .advice = {}});
}

}  // namespace

void dequantise(DType dtype, const void* blocks, int64_t count, float* out) {
  switch (dtype) {
    case DType::F32:
      std::memcpy(out, blocks, static_cast<size_t>(count) * sizeof(float));
      return;
    case DType::F16:
      for (int64_t i = 0; i < count; ++i) out[i] = f32_from_f16(static_cast<const uint16_t*>(blocks)[i]);
      return;
    case DType::BF16:
      for (int64_t i = 0; i < count; ++i) out[i] = f32_from_bf16(static_cast<const uint16_t*>(blocks)[i]);
      return;
    case DType::F64:
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(static_cast<const double*>(blocks)[i]);
      return;
    case DType::Q4_0:
      return decode_all<blocks::Q4_0>(dtype, blocks, count, out);
    case DType::Q4_1:
      return decode_all<blocks::Q4_1>(dtype, blocks, count, out);
    case DType::Q5_0:
      return decode_all<blocks::Q5_0>(dtype, blocks, count, out);
    case DType::Q5_1:
      return decode_all<blocks::Q5_1>(dtype, blocks, count, out);
    case DType::Q8_0:
      return decode_all<blocks::Q8_0>(dtype, blocks, count, out);
    case DType::Q2_K:
      return decode_all<blocks::Q2_K>(dtype, blocks, count, out);
    case DType::Q3_K:
      return decode_all<blocks::Q3_K>(dtype, blocks, count, out);
    case DType::Q4_K:
      return decode_all<blocks::Q4_K>(dtype, blocks, count, out);
    case DType::Q5_K:
      return decode_all<blocks::Q5_K>(dtype, blocks, count, out);
    case DType::Q6_K:
      return decode_all<blocks::Q6_K>(dtype, blocks, count, out);
    case DType::IQ4_NL:
      return decode_all<blocks::IQ4_NL>(dtype, blocks, count, out);
    case DType::IQ4_XS:
      return decode_all<blocks::IQ4_XS>(dtype, blocks, count, out);
    case DType::IQ3_XXS:
      return decode_all<blocks::IQ3_XXS>(dtype, blocks, count, out);
    case DType::IQ3_S:
      return decode_all<blocks::IQ3_S>(dtype, blocks, count, out);
    case DType::IQ2_S:
      return decode_all<blocks::IQ2_S>(dtype, blocks, count, out);
    case DType::MXFP4:
      return decode_all<blocks::MXFP4>(dtype, blocks, count, out);
    case DType::I8:
    case DType::I16:
    case DType::I32:
    case DType::I64:
    case DType::U8:
    case DType::Bool:
      break;
  }
  throw_no_codec(dtype, "a float or quantised type");
}

bool can_quantise(DType dtype) noexcept {
  switch (dtype) {
    case DType::F32:
    case DType::F16:
    case DType::BF16:
    case DType::Q4_0:
    case DType::Q4_1:
    case DType::Q5_0:
    case DType::Q5_1:
    case DType::Q8_0:
    case DType::Q2_K:
    case DType::Q3_K:
    case DType::Q4_K:
    case DType::Q5_K:
    case DType::Q6_K:
      return true;
    default:
      return false;
  }
}

void quantise(DType dtype, const float* x, int64_t count, void* blocks) {
  switch (dtype) {
    case DType::F32:
      std::memcpy(blocks, x, static_cast<size_t>(count) * sizeof(float));
      return;
    case DType::F16:
      for (int64_t i = 0; i < count; ++i) static_cast<uint16_t*>(blocks)[i] = f16_from_f32(x[i]);
      return;
    case DType::BF16:
      for (int64_t i = 0; i < count; ++i) static_cast<uint16_t*>(blocks)[i] = bf16_from_f32(x[i]);
      return;
    case DType::Q4_0:
      return encode_all<blocks::Q4_0>(dtype, x, count, blocks);
    case DType::Q4_1:
      return encode_all<blocks::Q4_1>(dtype, x, count, blocks);
    case DType::Q5_0:
      return encode_all<blocks::Q5_0>(dtype, x, count, blocks);
    case DType::Q5_1:
      return encode_all<blocks::Q5_1>(dtype, x, count, blocks);
    case DType::Q8_0:
      return encode_all<blocks::Q8_0>(dtype, x, count, blocks);
    case DType::Q2_K:
      return encode_all<blocks::Q2_K>(dtype, x, count, blocks);
    case DType::Q3_K:
      return encode_all<blocks::Q3_K>(dtype, x, count, blocks);
    case DType::Q4_K:
      return encode_all<blocks::Q4_K>(dtype, x, count, blocks);
    case DType::Q5_K:
      return encode_all<blocks::Q5_K>(dtype, x, count, blocks);
    case DType::Q6_K:
      return encode_all<blocks::Q6_K>(dtype, x, count, blocks);
    default:
      throw_no_codec(dtype, "a type that can be written");
  }
}

}  // namespace slipring
