// The weights that the program fuzzer's seeds name.
#pragma once

#include <filesystem>

namespace slipring::testing {

/// Zeros: "f32", "f16", "bf16", "i64" [8, 8] with biases; "q" and "q8" as blocks of Q4_0 and Q8_0 [8, 64] with biases;
/// "norm" [8]; "sinks" [2]; "router" [2, 8]; "none" [0, 8].
void write_program_weights(const std::filesystem::path& path);

}  // namespace slipring::testing
