// What codec.cpp's dispatch calls: one decode function a block type, one encode function where there is one.
#pragma once

#include "formats/block_layouts.h"

namespace slipring {

// Types of 32 (codec_simple.cpp), K types of 256 (codec_k.cpp, codec_k_quantise.cpp), codebook types (codec_iq.cpp).
// `out` and `x` hold one block's elements.
void decode(const blocks::Q4_0& block, float* out);
void decode(const blocks::Q4_1& block, float* out);
void decode(const blocks::Q5_0& block, float* out);
void decode(const blocks::Q5_1& block, float* out);
void decode(const blocks::Q8_0& block, float* out);
void decode(const blocks::Q2_K& block, float* out);
void decode(const blocks::Q3_K& block, float* out);
void decode(const blocks::Q4_K& block, float* out);
void decode(const blocks::Q5_K& block, float* out);
void decode(const blocks::Q6_K& block, float* out);
void decode(const blocks::IQ4_NL& block, float* out);
void decode(const blocks::IQ4_XS& block, float* out);
void decode(const blocks::IQ3_XXS& block, float* out);
void decode(const blocks::IQ3_S& block, float* out);
void decode(const blocks::IQ2_S& block, float* out);
void decode(const blocks::MXFP4& block, float* out);

void encode(const float* x, blocks::Q4_0& block);
void encode(const float* x, blocks::Q4_1& block);
void encode(const float* x, blocks::Q5_0& block);
void encode(const float* x, blocks::Q5_1& block);
void encode(const float* x, blocks::Q8_0& block);
void encode(const float* x, blocks::Q2_K& block);
void encode(const float* x, blocks::Q3_K& block);
void encode(const float* x, blocks::Q4_K& block);
void encode(const float* x, blocks::Q5_K& block);
void encode(const float* x, blocks::Q6_K& block);

}  // namespace slipring
