// f32 <-> f16 and bf16 on buffers. F16C converts eight or sixteen at a time; the rest follows tensor/half.h.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first: it includes this file once a target.
#include <hwy/highway.h>

#include "kernels/elementwise.h"
#include "tensor/half.h"

HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
int64_t F32ToF16Blocks(const float* x, int64_t count, uint16_t* out) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
  }
  return i;
}
int64_t F16ToF32Blocks(const uint16_t* x, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
  }
  return i;
}
#else
int64_t F32ToF16Blocks(const float*, int64_t, uint16_t*) {
  return 0;
}
int64_t F16ToF32Blocks(const uint16_t*, int64_t, float*) {
  return 0;
}
#endif

void F32ToF16(const float* x, int64_t count, uint16_t* out) {
  for (int64_t i = F32ToF16Blocks(x, count, out); i < count; ++i) out[i] = f16_from_f32(x[i]);
}
void F16ToF32(const uint16_t* x, int64_t count, float* out) {
  for (int64_t i = F16ToF32Blocks(x, count, out); i < count; ++i) out[i] = f32_from_f16(x[i]);
}
// Shifts and compares only: the compiler vectorises these for each target.
void F32ToBf16(const float* x, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = bf16_from_f32(x[i]);
}
void Bf16ToF32(const uint16_t* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = f32_from_bf16(x[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipring {

HWY_EXPORT(F32ToF16);
HWY_EXPORT(F16ToF32);
HWY_EXPORT(F32ToBf16);
HWY_EXPORT(Bf16ToF32);

void f32_to_f16(const float* x, int64_t count, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(F32ToF16)(x, count, out);
}
void f32_to_bf16(const float* x, int64_t count, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(F32ToBf16)(x, count, out);
}
void f16_to_f32(const uint16_t* x, int64_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(F16ToF32)(x, count, out);
}
void bf16_to_f32(const uint16_t* x, int64_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(Bf16ToF32)(x, count, out);
}

}  // namespace slipring
#endif  // HWY_ONCE
