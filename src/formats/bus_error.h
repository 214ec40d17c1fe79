// What happens when a mapped file loses bytes that are then read: the kernel sends SIGBUS, and no exception can be made
// of that. A program may ask for one clear line, exit status 1, and no half-written file.
#pragma once

#include <string>

namespace slipring {

/// From now on SIGBUS prints "slipring: a model file was cut short while it was in use ..." on stderr, removes the
/// temporary files of open OutputFiles and ends the process with status 1. For programs, not for libraries: it replaces
/// the process's handler. May be called again.
void end_clearly_on_bus_error() noexcept;

/// Names a file that a fatal bus error shall remove, while it lives. Beyond kMost at a time the name is ignored.
/// Threads: any.
class RemovedOnBusError {
 public:
  static constexpr int kMost = 16;
  explicit RemovedOnBusError(const std::string& path) noexcept;
  ~RemovedOnBusError();
  RemovedOnBusError(const RemovedOnBusError&) = delete;
  RemovedOnBusError& operator=(const RemovedOnBusError&) = delete;

 private:
  int slot_ = -1;
};

}  // namespace slipring
