// Any bytes as a safetensors file: an Error, or entries that cover the data exactly.
#include <cstdlib>

#include <slipring/error.h>

#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slipring;
  try {
    const auto header = SafetensorsHeader::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz.safetensors");
    uint64_t end = 0;
    for (const SafetensorsEntry& entry : header.entries) {
      uint64_t bytes = static_cast<uint64_t>(info(entry.dtype).block_bytes);
      for (const int64_t dim : entry.dims) bytes *= static_cast<uint64_t>(dim);
      if (bytes != entry.bytes || entry.begin < end) std::abort();
      end = entry.begin + entry.bytes;
    }
    if (!header.entries.empty() && end != size) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
