// A file that appears whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/bus_error.h"

namespace slipring {

/// Writes to a temporary name in the target's folder; commit() flushes it to the disk and renames it over the target.
/// Without commit() (an exception, a full disk) the destructor removes the temporary file and the target stays as it
/// was. A process that maps the old target keeps the old bytes.
/// Threads: one at a time.
class OutputFile {
 public:
  /// @throws Error{not_found} if the folder does not exist; Error{io} if it cannot be written or the target is a
  /// device, pipe or folder
  explicit OutputFile(std::filesystem::path target);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Appends. @throws Error{io} with the system's words (disk full, quota); the file is then of no further use
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Appends zeros up to a multiple of `alignment`.
  void pad(uint64_t alignment);
  uint64_t position() const noexcept { return position_; }
  const std::filesystem::path& target() const noexcept { return target_; }
  /// Where the bytes are until commit().
  std::filesystem::path temporary() const { return temporary_; }

  /// Flushes to the disk under the temporary name: what may still fail of commit() is the renaming. Writes no more.
  /// @throws Error{io}
  void complete();
  /// complete(), unless that was done, and the target's name. For several files that belong together, complete all of
  /// them first.
  /// @throws Error{io}; the target is then as it was
  void commit();

 private:
  void flush();
  void write_through(std::span<const std::byte> bytes);
  void close_and_remove() noexcept;

  std::filesystem::path target_;
  std::string temporary_;
  std::optional<RemovedOnSignal> removed_on_signal_;
  int descriptor_ = -1;
  uint64_t position_ = 0;
  bool completed_ = false;
  std::vector<std::byte> buffer_;
};

/// @param model what is being read: a file, or a folder that holds a model
/// @throws Error{invalid_argument} if writing `target` would replace it or one of its files, by whatever name or link
void refuse_to_replace(const std::filesystem::path& target, const std::filesystem::path& model);

}  // namespace slipring
