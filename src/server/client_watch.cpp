#include "server/client_watch.h"

#include <array>
#include <charconv>
#include <filesystem>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>

namespace slipring::server {
namespace {

bool belongs_to(int socket, const std::string& address, const std::string& port) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&peer), size, host.data(), host.size(), service.data(),
                  service.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return false;
  }
  return address == host.data() && port == service.data();
}

}  // namespace

ClientWatch::ClientWatch(const std::string& remote_address, int remote_port) {
  const std::string port = std::to_string(remote_port);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename();
    int descriptor = -1;
    std::from_chars(name.data(), name.data() + name.size(), descriptor);
    if (descriptor >= 0 && belongs_to(descriptor, remote_address, port)) {
      socket_ = descriptor;
      return;
    }
  }
}

bool ClientWatch::gone() const {
  if (socket_ < 0) return false;
  pollfd watched{socket_, POLLIN | POLLRDHUP, 0};
  if (poll(&watched, 1, 0) <= 0) return false;
  return (watched.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

}  // namespace slipring::server
