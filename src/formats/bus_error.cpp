#include "formats/bus_error.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace slipring {
namespace {

// A handler may touch nothing but lock-free atomics and async-signal-safe calls: so fixed slots with owned copies.
std::array<std::atomic<char*>, RemovedOnBusError::kMost> paths{};
static_assert(std::atomic<char*>::is_always_lock_free);

// Several threads read one file: the first that faults speaks for all.
std::atomic_flag speaking = ATOMIC_FLAG_INIT;

constexpr char kMessage[] =
    "slipring: a model file was cut short while it was in use: another program writes it; start again when it is "
    "done\n";

void on_bus_error(int) {
  if (speaking.test_and_set()) {
    for (;;) ::pause();  // the first ends the process
  }
  for (const auto& slot : paths) {
    const char* path = slot.load();
    if (path != nullptr) ::unlink(path);
  }
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  ::_exit(1);
}

}  // namespace

void end_clearly_on_bus_error() noexcept {
  struct sigaction action {};
  action.sa_handler = on_bus_error;
  ::sigaction(SIGBUS, &action, nullptr);
}

RemovedOnBusError::RemovedOnBusError(const std::string& path) noexcept {
  char* copy = ::strdup(path.c_str());
  if (copy == nullptr) return;
  for (int slot = 0; slot < kMost; ++slot) {
    char* free_slot = nullptr;
    if (paths[static_cast<size_t>(slot)].compare_exchange_strong(free_slot, copy)) {
      slot_ = slot;
      return;
    }
  }
  std::free(copy);  // NOLINT: strdup's memory
}

RemovedOnBusError::~RemovedOnBusError() {
  if (slot_ >= 0) std::free(paths[static_cast<size_t>(slot_)].exchange(nullptr));  // NOLINT: strdup's memory
}

}  // namespace slipring
