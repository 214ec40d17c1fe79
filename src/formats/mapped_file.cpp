#include "formats/mapped_file.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/format_error.h"

namespace slipring {

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = path;
  // O_NONBLOCK: opening a FIFO must not wait for a writer; it has no effect on regular files.
  file->descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // NOLINT: POSIX interface
  if (file->descriptor_ < 0) throw_system_error(path.string(), "cannot open", errno);
  struct stat status {};
  if (::fstat(file->descriptor_, &status) != 0) throw_system_error(path.string(), "cannot read the size", errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::io, {.where = path.string(),
                                .expected = "a regular file",
                                .got = S_ISDIR(status.st_mode) ? "a folder" : "a pipe, socket or device",
                                .advice = {}});
  }
  file->size_ = static_cast<size_t>(status.st_size);
  if (file->size_ == 0) return file;
  void* data = ::mmap(nullptr, file->size_, PROT_READ, MAP_PRIVATE, file->descriptor_, 0);
  if (data == MAP_FAILED) throw_system_error(path.string(), "cannot map into memory", errno);
  file->data_ = static_cast<const std::byte*>(data);
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);  // NOLINT: munmap takes void*
  if (descriptor_ >= 0) ::close(descriptor_);
}

void MappedFile::check_size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) throw_system_error(path_.string(), "cannot read the size", errno);
  if (static_cast<size_t>(status.st_size) < size_) {
    throw Error(ErrorCode::io, {.where = path_.string(),
                                .expected = fmt::format("{} bytes as when it was opened", size_),
                                .got = fmt::format("a file that shrank to {} bytes", status.st_size),
                                .advice = "another program is writing it; wait, then start again"});
  }
}

void MappedFile::release(const void* data, int64_t size) const noexcept {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const auto base = reinterpret_cast<uintptr_t>(data_);
  if (size <= 0 || begin < base || begin - base > size_ || static_cast<size_t>(size) > size_ - (begin - base)) return;
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + static_cast<uintptr_t>(size)) / page * page;
  if (first >= last) return;
  ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);  // NOLINT: whole pages by address
}

}  // namespace slipring
