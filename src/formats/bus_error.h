// What happens when a mapped file loses bytes that are then read: the kernel sends SIGBUS, and no exception can be made
// of that. A program may ask for one clear line, exit status 1, and no half-written file.
#pragma once

#include <string>

namespace slipring {

/// From now on SIGBUS prints "slipring: a model file was cut short while it was in use ..." on stderr, removes the
/// temporary files of open OutputFiles and ends the process with status 1. For programs, not for libraries: it replaces
/// the process's handler. May be called again.
void end_clearly_on_bus_error() noexcept;

/// From now on SIGINT, SIGTERM and SIGHUP, where they would end the process, first remove the temporary files of open
/// OutputFiles. For programs; a handler that is set later takes its signal over.
void leave_nothing_on_termination() noexcept;

/// Names a file that a signal of the two above shall remove, while it lives. Beyond kMost at a time the name is
/// ignored. Threads: any.
class RemovedOnSignal {
 public:
  static constexpr int kMost = 64;
  explicit RemovedOnSignal(const std::string& path) noexcept;
  ~RemovedOnSignal();
  RemovedOnSignal(const RemovedOnSignal&) = delete;
  RemovedOnSignal& operator=(const RemovedOnSignal&) = delete;

 private:
  int slot_ = -1;
};

}  // namespace slipring
