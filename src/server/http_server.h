// The sockets: routes, access, limits, streaming, and an end in good order.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "server/access.h"
#include "server/service.h"

namespace slipring::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  ///< 0: any that is free
  AccessRules access;
  int64_t max_body_bytes = int64_t{8} << 20;
  std::chrono::seconds silence_timeout{10};  ///< silence while a request arrives
  std::chrono::seconds request_timeout{30};  ///< for a request to arrive as a whole, however it drips
  std::chrono::seconds idle_timeout{5};      ///< between two requests of a connection
  std::chrono::seconds write_timeout{30};    ///< for a client to take what is sent
  std::chrono::seconds drain{20};            ///< for replies to end once the server is asked to stop
  int threads = 128;                         ///< connections served at once
};

/// Threads: run() blocks; stop() from any thread.
class HttpServer {
 public:
  HttpServer(Service& service, const HttpOptions& options);
  ~HttpServer();

  /// Starts the threads for connections and binds. Once. @return the port
  /// @throws Error{io} naming host and port; Error{out_of_memory} if the system does not start all threads
  int bind();
  /// After bind(). Serves until stop(), then waits for running replies.
  void run();
  /// Takes no more connections; replies that run go on until they end or the drain time is over.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slipring::server
