// Codebooks of the IQ block types.
#pragma once

#include <array>
#include <cstdint>

namespace slipring {

extern const std::array<uint16_t, 256> kIq3XxsGrid;  ///< 4 elements of 4 bits
extern const std::array<uint16_t, 512> kIq3SGrid;    ///< 4 elements of 4 bits
extern const std::array<uint16_t, 1024> kIq2SGrid;   ///< 8 elements of 2 bits

}  // namespace slipring
