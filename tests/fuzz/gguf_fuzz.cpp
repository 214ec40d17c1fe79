// Any bytes as a GGUF file: an Error or a header, of which every value and every tensor can be read.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include <slipring/error.h>

#include "formats/codec.h"
#include "formats/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slipring;
  // Mapped files are page-aligned; the fuzzer's bytes are not.
  std::vector<uint64_t> aligned(size / sizeof(uint64_t) + 1);
  std::copy_n(data, size, reinterpret_cast<uint8_t*>(aligned.data()));
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(aligned.data()), size);
  try {
    const GgufHeader header = GgufHeader::parse(file, "fuzz.gguf");
    for (const GgufHeader::Entry& entry : header.entries()) {
      if (header.find(entry.key) != &entry.value) std::abort();
      as_integer(entry.value);
      as_real(entry.value);
      as_boolean(entry.value);
      as_text(entry.value);
      as_integers(entry.value);
      as_reals(entry.value);
      as_texts(entry.value);
    }
    for (const GgufTensor& tensor : header.tensors()) {
      if (tensor.begin + tensor.bytes > size) std::abort();
      if (static_cast<uint64_t>(bytes_of(tensor.dtype, tensor.shape.elements())) != tensor.bytes) std::abort();
      constexpr int64_t kSome = 4096;  // a multiple of every block size
      std::vector<float> floats(kSome);
      const int64_t count = std::min(kSome, tensor.shape.elements());
      try {
        dequantise(tensor.dtype, file.data() + tensor.begin, count, floats.data());
      } catch (const Error&) {  // an integer type
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
