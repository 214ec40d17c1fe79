#include "formats/output_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/format_error.h"

namespace slipring {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
// Linux writes at most this much in one call.
constexpr size_t kMaxWriteBytes = size_t{1} << 30;

}  // namespace

OutputFile::OutputFile(std::filesystem::path target) : target_(std::move(target)) {
  struct stat status {};
  // Renaming over a device would replace it: "-o /dev/null" must not.
  if (::stat(target_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::io, {.where = target_.string(),
                                .expected = "a new file or an existing regular one",
                                .got = S_ISDIR(status.st_mode) ? "a folder" : "a device, pipe or socket",
                                .advice = "name a file"});
  }
  buffer_.reserve(kBufferBytes);  // before there is a file: no destructor runs after a constructor that throws
  constexpr int kAttempts = 100;  // names left behind by killed processes may be taken
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    temporary_ = fmt::format("{}.{}-{}.tmp", target_.string(), ::getpid(), attempt);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);  // NOLINT: POSIX interface
    if (descriptor_ >= 0 || errno != EEXIST) break;
  }
  if (descriptor_ < 0) throw_system_error(temporary_, "cannot create", errno);
  try {
    removed_on_signal_.emplace(temporary_);
  } catch (...) {
    close_and_remove();
    throw;
  }
}

OutputFile::~OutputFile() {
  close_and_remove();
}

void OutputFile::close_and_remove() noexcept {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  descriptor_ = -1;
  ::unlink(temporary_.c_str());
}

void OutputFile::write_through(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMaxWriteBytes));
    if (written < 0) {
      if (errno == EINTR) continue;
      const int error = errno;
      throw_system_error(target_.string(), fmt::format("cannot write after byte {}", position_ - bytes.size()), error,
                         "nothing was left behind; free some space and try again");
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void OutputFile::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void OutputFile::write(std::span<const std::byte> bytes) {
  position_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() > kBufferBytes) {
    write_through(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void OutputFile::pad(uint64_t alignment) {
  static constexpr std::array<std::byte, 64> kZeros{};
  while (position_ % alignment != 0) {
    write(std::span(kZeros).first(std::min<uint64_t>(kZeros.size(), alignment - position_ % alignment)));
  }
}

void OutputFile::complete() {
  if (completed_) return;
  flush();
  if (::fsync(descriptor_) != 0) throw_system_error(target_.string(), "cannot flush to the disk", errno);
  completed_ = true;
}

void OutputFile::commit() {
  complete();
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    throw_system_error(target_.string(), "cannot rename the finished file to this name", errno);
  }
  removed_on_signal_.reset();
  // The data is safe under its name; what close or the folder's flush report now changes nothing about that.
  ::close(descriptor_);
  descriptor_ = -1;
  const auto folder = target_.has_parent_path() ? target_.parent_path() : std::filesystem::path(".");
  const int folder_descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);  // NOLINT
  if (folder_descriptor >= 0) {
    ::fsync(folder_descriptor);
    ::close(folder_descriptor);
  }
}

void refuse_to_replace(const std::filesystem::path& target, const std::filesystem::path& model) {
  namespace fs = std::filesystem;
  // What models are read from; other files of a model's folder are not part of it.
  constexpr std::array<std::string_view, 7> kModelEndings{".gguf",  ".safetensors", ".json", ".model",
                                                          ".jinja", ".program",     ".onnx"};
  std::error_code unknown;  // what cannot be looked at is no file of the model's
  const auto folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  const std::string ending = target.extension().string();
  const bool own = fs::is_directory(model, unknown)
                       ? fs::exists(target, unknown) && fs::equivalent(folder, model, unknown) &&
                             std::find(kModelEndings.begin(), kModelEndings.end(), ending) != kModelEndings.end()
                       : fs::equivalent(target, model, unknown);
  if (!own) return;
  throw Error(ErrorCode::invalid_argument, {.where = target.string(),
                                            .expected = "another file to write to",
                                            .got = "the model that is being read",
                                            .advice = "choose another name"});
}

}  // namespace slipring
