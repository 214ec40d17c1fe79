// Snapshots as bytes. docs/snapshots.md has the layout.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <slipring/snapshot.h>

namespace slipring {

/// Detects damage, not malice: 64-bit words mixed one after the other. Bytes may come in any pieces.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) noexcept;
  uint64_t value() const noexcept;

 private:
  void mix(uint64_t word) noexcept;
  uint64_t state_ = 0x736c697072696e67ULL;
  uint64_t partial_ = 0;  // bytes that do not fill a word yet
  uint64_t count_ = 0;
};

class SnapshotFile {
 public:
  static constexpr uint32_t kVersion = 1;
  static constexpr size_t kHeaderBytes = 24;  ///< magic, version, reserved, file size

  static void write(const Snapshot& snapshot, const std::filesystem::path& path);
  /// @param where  the file's name, for errors
  static std::shared_ptr<const Snapshot> read(std::span<const std::byte> bytes, const std::string& where);
};

}  // namespace slipring
