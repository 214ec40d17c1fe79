#include "server/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace slipring::server {
namespace {

using std::chrono::milliseconds;

thread_local Connection* serving = nullptr;

// How long, and how much, a client that was refused may still send before the connection is cut.
constexpr milliseconds kLinger{1000};
constexpr size_t kLingerBytes = size_t{16} << 20;

using GetName = int (*)(int, sockaddr*, socklen_t*);

void name_of(int socket, GetName get, std::string& ip, int& port) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  if (get(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host.data(), host.size(), service.data(),
                  service.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return;
  }
  ip = host.data();
  port = std::atoi(service.data());
}

}  // namespace

Connection::Connection(int socket, const ConnectionLimits& limits)
    : socket_(socket), limits_(limits), deadline_(Clock::now() + limits.request) {
  serving = this;
}

Connection::~Connection() {
  serving = nullptr;
  // Closing while bytes arrive would reset the connection, and the client might lose the answer that it was refused.
  shutdown(socket_, SHUT_WR);
  const auto until = Clock::now() + kLinger;
  for (size_t dropped = 0; dropped < kLingerBytes && ready(POLLIN, until - Clock::now());) {
    const ssize_t count = recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (count <= 0) break;
    dropped += static_cast<size_t>(count);
  }
  close(socket_);
}

Connection* Connection::current() noexcept {
  return serving;
}

bool Connection::ready(short events, Clock::duration patience) const noexcept {
  const auto until = Clock::now() + patience;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    pollfd watched{socket_, events, 0};
    const int found = poll(&watched, 1, static_cast<int>(std::max<milliseconds::rep>(0, left.count())));
    if (found >= 0 || errno != EINTR) return found > 0;
  }
}

bool Connection::next_request(milliseconds patience) {
  if (begin_ == end_ && !ready(POLLIN, patience)) return false;
  deadline_ = Clock::now() + limits_.request;
  taken_ = 0;
  return true;
}

bool Connection::gone() const noexcept {
  pollfd watched{socket_, POLLIN | POLLRDHUP, 0};
  return poll(&watched, 1, 0) > 0 && (watched.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

bool Connection::is_readable() const {
  return begin_ < end_ || ready(POLLIN, std::min<Clock::duration>(limits_.silence, deadline_ - Clock::now()));
}

bool Connection::is_writable() const {
  return ready(POLLOUT, limits_.write);
}

ssize_t Connection::receive(char* into, size_t size) {
  if (Clock::now() >= deadline_ || !is_readable()) return -1;
  while (true) {
    const ssize_t count = recv(socket_, into, size, 0);
    if (count >= 0 || errno != EINTR) return count;
  }
}

ssize_t Connection::read(char* into, size_t size) {
  if (taken_ >= limits_.request_bytes) return -1;
  ssize_t count = 0;
  if (begin_ == end_ && size >= buffer_.size()) {
    count = receive(into, size);
  } else {
    if (begin_ == end_) {
      count = receive(buffer_.data(), buffer_.size());
      if (count <= 0) return count;
      begin_ = 0;
      end_ = static_cast<size_t>(count);
    }
    const size_t part = std::min(size, end_ - begin_);
    std::memcpy(into, buffer_.data() + begin_, part);
    begin_ += part;
    count = static_cast<ssize_t>(part);
  }
  if (count > 0) taken_ += count;
  return count;
}

ssize_t Connection::write(const char* from, size_t size) {
  if (!is_writable()) return -1;
  while (true) {
    const ssize_t count = send(socket_, from, size, MSG_NOSIGNAL);
    if (count >= 0 || errno != EINTR) return count;
  }
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  name_of(socket_, getpeername, ip, port);
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  name_of(socket_, getsockname, ip, port);
}

bool ConnectionServer::process_and_close_socket(int socket) {
  constexpr milliseconds kSlice{100};
  Connection connection(socket, limits);
  bool sound = false;
  for (size_t left = keep_alive_max_count_; left > 0; --left) {
    // In slices, so that a server that stops does not wait for idle clients.
    const auto until = std::chrono::steady_clock::now() + idle;
    bool asked = false;
    while (!asked && svr_sock_ != INVALID_SOCKET && std::chrono::steady_clock::now() < until) {
      asked = connection.next_request(kSlice);
    }
    if (!asked) break;
    bool closed = false;
    sound = process_request(connection, left == 1, closed, [](httplib::Request& request) {
      // A request that announces no body has none (RFC 9112, 6.3); httplib would read on until the client gives up.
      if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding")) {
        request.set_header("Content-Length", "0");
      }
    });
    if (!sound || closed || connection.last()) break;
  }
  return sound;
}

}  // namespace slipring::server
