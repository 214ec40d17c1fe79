// A safetensors file: named tensors behind a JSON header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <slipring/tensor.h>

#include "formats/mapped_file.h"

namespace slipring {

namespace safetensors_limits {
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  ///< the reference implementation's own
inline constexpr size_t kMaxRank = 8;
}  // namespace safetensors_limits

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> dims;  ///< may be more than a Shape holds; tensor() refuses those then
  uint64_t begin = 0;         ///< first byte, from the start of the file
  uint64_t bytes = 0;
};

/// Checked header, entries in the order of their data.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;  ///< "__metadata__"

  /// The tensors must cover the data without gap, overlap or trailing bytes, as the format demands.
  /// @throws Error{bad_file, unsupported} naming the tensor, with the numbers
  static SafetensorsHeader parse(std::span<const std::byte> file, const std::string& where);
};

/// Threads: const use from any number of threads.
class SafetensorsFile {
 public:
  /// @throws Error{not_found, io, bad_file, unsupported}
  static std::shared_ptr<const SafetensorsFile> open(const std::filesystem::path& path);

  const std::vector<SafetensorsEntry>& entries() const noexcept { return header_.entries; }
  const std::map<std::string, std::string>& metadata() const noexcept { return header_.metadata; }
  const SafetensorsEntry* find(std::string_view name) const noexcept;
  /// A view of the mapped file that keeps it mapped, or a copy where the file has the data misaligned for its type.
  /// @throws Error{not_found} naming the tensor; Error{unsupported} beyond Shape::kMaxRank dimensions; Error{io} if the
  /// file shrank
  Tensor tensor(std::string_view name) const;
  const MappedFile& file() const noexcept { return *file_; }

 private:
  std::shared_ptr<const MappedFile> file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace slipring
