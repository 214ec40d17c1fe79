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
std::array<std::atomic<char*>, RemovedOnSignal::kMost> paths{};
static_assert(std::atomic<char*>::is_always_lock_free);

// Several threads read one file: the first that faults speaks for all.
std::atomic_flag speaking = ATOMIC_FLAG_INIT;

constexpr char kMessage[] =
    "slipring: a model file was cut short while it was in use: another program writes it; start again when it is "
    "done\n";

void remove_all() {
  for (const auto& slot : paths) {
    const char* path = slot.load();
    if (path != nullptr) ::unlink(path);
  }
}

void on_bus_error(int) {
  if (speaking.test_and_set()) {
    for (;;) ::pause();  // the first ends the process
  }
  remove_all();
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  ::_exit(1);
}

void on_termination(int signal) {
  remove_all();
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // comes once this handler returns
}

}  // namespace

void leave_nothing_on_termination() noexcept {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    // nohup and shells' background jobs have some of them ignored; that stays.
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action = {};
    action.sa_handler = on_termination;
    ::sigaction(signal, &action, nullptr);
  }
}

void end_clearly_on_bus_error() noexcept {
  struct sigaction action {};
  action.sa_handler = on_bus_error;
  ::sigaction(SIGBUS, &action, nullptr);
}

RemovedOnSignal::RemovedOnSignal(const std::string& path) noexcept {
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

RemovedOnSignal::~RemovedOnSignal() {
  if (slot_ >= 0) std::free(paths[static_cast<size_t>(slot_)].exchange(nullptr));  // NOLINT: strdup's memory
}

}  // namespace slipring
