#include "cli/say.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace slipring::cli {

void say_text(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t count = ::write(STDERR_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

void hold_standard_streams() noexcept {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;  // NOLINT: POSIX interface
    // The lowest free descriptor is this one. Opened the wrong way round: who reads or writes it still gets EBADF.
    const int mode = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    [[maybe_unused]] const int opened = ::open("/dev/null", mode);  // NOLINT: POSIX interface
  }
}

}  // namespace slipring::cli
