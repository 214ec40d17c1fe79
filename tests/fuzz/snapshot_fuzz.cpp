// Any bytes as a saved session: an Error, or a snapshot whose layers hold what its tokens need and that is written as
// it was read.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <unistd.h>
#include <vector>

#include <slipring/error.h>

#include "engine/snapshot_file.h"
#include "formats/mapped_file.h"

namespace {

using namespace slipring;
namespace fs = std::filesystem;

void check(bool holds) {
  if (!holds) std::abort();
}

// Gives the bytes the size and the checksum that the reader asks for: without them nothing gets past the first check.
void seal(std::vector<std::byte>& file) {
  constexpr size_t kSizeAt = SnapshotFile::kHeaderBytes - sizeof(uint64_t);
  if (file.size() < SnapshotFile::kHeaderBytes + sizeof(uint64_t)) return;
  const uint64_t size = file.size();
  std::memcpy(file.data() + kSizeAt, &size, sizeof size);
  Checksum checksum;
  checksum.add(std::span(file).first(file.size() - sizeof(uint64_t)));
  const uint64_t sum = checksum.value();
  std::memcpy(file.data() + file.size() - sizeof sum, &sum, sizeof sum);
}

void use(const Snapshot& snapshot) {
  for (const Snapshot::Layer& layer : snapshot.layers()) {
    int64_t held = 0;
    for (const KVBlock& part : layer.parts) {
      check(part.n_kv_heads() == layer.layout.n_kv_heads && part.head_dim() == layer.layout.head_dim);
      check(part.dtype() == snapshot.kv_dtype());
      held += part.query_len();
    }
    check(layer.first >= 0 && held == snapshot.length() - layer.first);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(first, first + size);
  try {
    use(*SnapshotFile::read(bytes, "raw"));
  } catch (const Error&) {
  }
  seal(bytes);
  try {
    const auto snapshot = SnapshotFile::read(bytes, "sealed");
    use(*snapshot);
    if (size % 8 != 0) return 0;  // files are slow
    const fs::path path = fs::temp_directory_path() / ("slipring-fuzz-snapshot-" + std::to_string(::getpid()));
    SnapshotFile::write(*snapshot, path);
    const auto written = MappedFile::open(path);
    fs::remove(path);
    // All but the reserved word, which the writer sets to zero, and so the checksum.
    const std::span<const std::byte> again = written->bytes();
    constexpr size_t kReservedAt = 12;
    check(again.size() == bytes.size() && std::memcmp(again.data(), bytes.data(), kReservedAt) == 0);
    constexpr size_t kBody = SnapshotFile::kHeaderBytes;
    check(std::memcmp(again.data() + kBody, bytes.data() + kBody, bytes.size() - kBody - sizeof(uint64_t)) == 0);
  } catch (const Error&) {
  }
  return 0;
}
