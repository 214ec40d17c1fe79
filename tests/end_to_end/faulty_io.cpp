// Preloaded into the program by the fault test: a disk that fills up or fails, and a file that another program cuts.
//
// SLIPRING_FAULT_WRITE=BYTES:ERRNO  regular files but the standard streams take so many bytes in all, then write()
// fails SLIPRING_FAULT_FSYNC=ERRNO, SLIPRING_FAULT_RENAME=ERRNO SLIPRING_FAULT_CUT=PATH           PATH loses all but
// its first page ... SLIPRING_FAULT_CUT_AT=write       ... at the first such write(), or
//                      =thread      ... when the first thread is started
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr long kPage = 4096;

bool is_regular(int descriptor) {
  struct stat status {};
  return descriptor > STDERR_FILENO && ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

void cut(const char* moment) {
  static std::atomic<bool> done{false};
  const char* path = std::getenv("SLIPRING_FAULT_CUT");
  const char* when = std::getenv("SLIPRING_FAULT_CUT_AT");
  if (path == nullptr || when == nullptr || std::strcmp(when, moment) != 0 || done.exchange(true)) return;
  if (::truncate(path, kPage) != 0) std::abort();
}

bool fails(const char* variable) {
  const char* given = std::getenv(variable);
  if (given != nullptr) errno = std::atoi(given);
  return given != nullptr;
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t count) {
  static std::atomic<long> taken{0};
  const char* fault = std::getenv("SLIPRING_FAULT_WRITE");
  if (is_regular(descriptor)) {
    cut("write");
    if (fault != nullptr) {
      char* rest = nullptr;
      const long room = std::strtol(fault, &rest, 10) - taken.load();
      if (room <= 0) {
        errno = std::atoi(rest + 1);
        return -1;
      }
      if (count > static_cast<size_t>(room)) count = static_cast<size_t>(room);
      taken += static_cast<long>(count);
    }
  }
  return ::syscall(SYS_write, descriptor, bytes, count);
}

int fsync(int descriptor) {
  return fails("SLIPRING_FAULT_FSYNC") ? -1 : static_cast<int>(::syscall(SYS_fsync, descriptor));
}

int rename(const char* from, const char* to) noexcept {
  return fails("SLIPRING_FAULT_RENAME") ? -1 : static_cast<int>(::syscall(SYS_rename, from, to));
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  cut("thread");
  return real(thread, attributes, start, argument);
}

}  // extern "C"
