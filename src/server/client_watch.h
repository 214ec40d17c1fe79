// Tells whether the client of a request is still there.
#pragma once

#include <string>

namespace slipring::server {

/// Watches the TCP connection of one client. cpp-httplib does not hand out the socket of a request, so it is found
/// among this process's own by the client's address and port, which only one connection has.
class ClientWatch {
 public:
  ClientWatch(const std::string& remote_address, int remote_port);
  /// True once the client closed the connection. False as well if the socket was not found.
  bool gone() const;

 private:
  int socket_ = -1;
};

}  // namespace slipring::server
