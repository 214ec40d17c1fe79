// Which SIMD instruction sets this build and this machine share, and which one the kernels use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slipring {

/// Names of the targets that can run here, best first, "scalar" last: "avx3_dl" (AVX-512 with VNNI), "avx3", "avx2".
std::vector<std::string> available_targets();

/// The target in use. Chosen once: the environment variable SLIPRING_TARGET if set, else the best one.
std::string current_target();

/// Forces a target for the whole process, "" for the best. Every target gives the same bits, so this is for tests and
/// measurements. Not while kernels run.
/// @throws Error{invalid_argument} naming those there are
void use_target(std::string_view name);

}  // namespace slipring
