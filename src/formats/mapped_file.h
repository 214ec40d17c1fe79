// A whole file as read-only memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace slipring {

/// Maps a regular file, private and read-only; pages come in when they are first read.
/// A file that another process cuts while it is mapped makes reads past its new end fail with SIGBUS. check_size()
/// turns the cut into an Error where data is handed out; what is cut later only a signal handler can meet: programs
/// call end_clearly_on_bus_error(). Replace
/// model files by renaming a new file over the old one, as slipring's own writers do: then the mapping keeps the old.
/// Threads: const use from any number of threads.
class MappedFile {
 public:
  /// @throws Error{not_found} if it does not exist, Error{io} if it cannot be read or is no regular file
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  /// The same bytes as characters.
  std::string_view text() const noexcept { return {reinterpret_cast<const char*>(data_), size_}; }

  /// @throws Error{io} with both sizes if the file is now shorter than it was when it was mapped
  void check_size() const;
  /// Lets the system drop the whole pages inside [data, data + size); they are read again when touched.
  void release(const void* data, int64_t size) const noexcept;

 private:
  MappedFile() = default;
  std::filesystem::path path_;
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace slipring
