// The experts of gpt-oss, in the three ways that files hold them.
#pragma once

#include "models/weight_loader.h"

namespace slipring {

struct MixtureSizes {
  int64_t hidden = 0;
  int64_t inner = 0;
  int64_t experts = 0;
};

/// Experts of one layer. GGUF: a tensor each for gate, up and down, [experts, out, in], of any type. Hugging Face:
/// plain floats [experts, in, out], or MXFP4 as a pair of blocks and scales; gate and up are one tensor, an output of
/// the gate before each output of up.
/// @throws Error{bad_file} naming the tensor
std::vector<Expert> load_experts(WeightLoader& load, const MixtureSizes& sizes, int64_t layer);

}  // namespace slipring
