// One client's connection: time-outs and sizes that a slow or endless sender cannot stretch.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <httplib.h>
#include <string>

namespace slipring::server {

struct ConnectionLimits {
  std::chrono::milliseconds silence{10000};   ///< between two bytes of a request
  std::chrono::milliseconds request{30000};   ///< for a whole request, from its first byte to its last
  std::chrono::milliseconds write{30000};     ///< for the client to take what is sent
  int64_t request_bytes = int64_t{16} << 20;  ///< of a whole request, headers included
};

/// Owns the socket. Threads: one at a time.
class Connection final : public httplib::Stream {
 public:
  Connection(int socket, const ConnectionLimits& limits);
  /// Closes, so that the client can still read what was sent last.
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// The connection that the calling thread serves; null elsewhere.
  static Connection* current() noexcept;

  /// The connection ends with the answer that is being made: what follows the request's header is not read, and must
  /// not be taken for another request.
  void end_with_this() noexcept { last_ = true; }
  bool last() const noexcept { return last_; }

  /// Waits for the first byte of the next request, at most `patience`, and starts its clock. False without one.
  bool next_request(std::chrono::milliseconds patience);
  /// Whether the client closed its end. Data that it sent but nobody read does not hide that.
  bool gone() const noexcept;

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* into, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  int socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;
  bool ready(short events, Clock::duration patience) const noexcept;
  ssize_t receive(char* into, size_t size);

  int socket_;
  ConnectionLimits limits_;
  Clock::time_point deadline_;  // of the request
  int64_t taken_ = 0;           // bytes of the request
  std::array<char, 4096> buffer_{};
  size_t begin_ = 0;
  size_t end_ = 0;
  bool last_ = false;
};

/// httplib's server on connections of this kind.
class ConnectionServer : public httplib::Server {
 public:
  ConnectionLimits limits;
  std::chrono::milliseconds idle{5000};  ///< between two requests of a connection

 private:
  bool process_and_close_socket(int socket) override;
};

}  // namespace slipring::server
