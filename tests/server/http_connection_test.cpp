// Connections that misbehave: senders too slow or without end, requests inside bodies, clients that leave.
#include <array>
#include <cerrno>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_fixture.h"

namespace slipring::server {
namespace {

int connected(int port) {
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return descriptor;
}

// Writes a piece, then a byte every 50 ms, until the server closes or `patience` is over. @return seconds it took
double drip(int port, const std::string& first, const std::string& rest, double patience) {
  const int descriptor = connected(port);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  send(descriptor, first.data(), first.size(), MSG_NOSIGNAL);
  bool open = true;
  for (size_t at = 0; open && seconds() < patience; ++at) {
    send(descriptor, &rest[at % rest.size()], 1, MSG_NOSIGNAL);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    // Readable and nothing there, or an error: it was closed.
    char byte = 0;
    ssize_t count = 1;
    while (count > 0) count = recv(descriptor, &byte, 1, MSG_DONTWAIT);
    open = count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  close(descriptor);
  return seconds();
}

TEST_F(Http, SlowSendersAreCutOff) {
  start({}, 64, 4, 8, std::chrono::seconds(1));
  const std::string body_head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{";
  double header = 0;
  std::thread other([&] { header = drip(port_, "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", "a", 8); });
  const double body = drip(port_, body_head, " ", 8);
  other.join();
  EXPECT_GT(header, 0.9);
  EXPECT_LT(header, 5);
  EXPECT_GT(body, 0.9);
  EXPECT_LT(body, 5);
}

TEST_F(Http, EndlessHeadersAreCutOff) {
  start({}, 64);
  const std::string line = "X-More: " + std::string(1000, 'a') + "\r\n";
  std::string flood = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
  while (flood.size() < (4 << 20)) flood += line;
  const double seconds = drip(port_, flood, line, 20);
  EXPECT_LT(seconds, 15);
}

// All that comes back for what is sent at once, to the idle connection's end.
std::string answers_to(int port, const std::string& sent) {
  const int descriptor = connected(port);
  send(descriptor, sent.data(), sent.size(), MSG_NOSIGNAL);
  std::string answer;
  std::array<char, 4096> buffer{};
  for (ssize_t count = 1; count > 0;) {
    count = recv(descriptor, buffer.data(), buffer.size(), 0);
    if (count > 0) answer.append(buffer.data(), static_cast<size_t>(count));
  }
  close(descriptor);
  return answer;
}

constexpr const char* kHealth = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

// A body that nobody reads is not taken for a request.
TEST_F(Http, NothingInABodyIsARequest) {
  start({.api_keys = {"k"}, .allowed_hosts = {}, .cors_origins = {}}, 64);
  const std::string hidden = kHealth;
  const std::string length = "Host: localhost\r\nContent-Length: " + std::to_string(hidden.size()) + "\r\n\r\n";
  for (const char* line : {"POST /v1/completions", "GET /health", "GET /v1/models", "OPTIONS /v1/models",
                           "DELETE /v1/models", "PUT /health", "POST /nothing"}) {
    const std::string answer = answers_to(port_, line + (" HTTP/1.1\r\n" + length) + hidden);
    EXPECT_EQ(answer.find("HTTP/1.1 "), 0U) << line;
    EXPECT_EQ(answer.find("HTTP/1.1 ", 1), std::string::npos) << line << ": " << answer;
  }
}

// Without a length there is no body, and nothing to wait for.
TEST_F(Http, ABodyThatIsNotAnnouncedIsEmpty) {
  start({}, 64);
  const auto begin = std::chrono::steady_clock::now();
  for (const char* line : {"POST /v1/completions", "POST /tokenize", "PATCH /v1/models", "PUT /nothing"}) {
    const std::string answer = answers_to(port_, line + std::string(" HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    EXPECT_EQ(answer.find("HTTP/1.1 4"), 0U) << line;
    EXPECT_EQ(answer.find("well-formed"), std::string::npos) << line << ": " << answer;
  }
  // Each ends with the idle connection, after a second; a body is waited for ten seconds.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
}

TEST_F(Http, TwoRequestsInOnePieceAreBothAnswered) {
  start({}, 64);
  const std::string one = kHealth;
  const std::string answer = answers_to(port_, one + one);
  const size_t first = answer.find("\"status\":\"ok\"");
  ASSERT_NE(first, std::string::npos) << answer;
  EXPECT_NE(answer.find("\"status\":\"ok\"", first + 1), std::string::npos) << answer;
}

TEST_F(Http, AClientThatLeavesFreesItsPlace) {
  start({}, 8000, 1, 0);
  for (const char* stream : {"true", "false"}) {
    {
      httplib::Client leaving("127.0.0.1", port_);
      leaving.set_read_timeout(0, 300000);
      httplib::Request request;
      request.method = "POST";
      request.path = "/v1/completions";
      request.set_header("Content-Type", "application/json");
      request.body = std::string(R"({"prompt": "In the", "max_tokens": 7000, "logit_bias": {"1": -100, "4092": -100},
        "stream": )") +
                     stream + "}";
      // A stream is left at its first piece, a whole reply when the time is over.
      request.content_receiver = [](const char*, size_t, uint64_t, uint64_t) { return false; };
      EXPECT_FALSE(leaving.send(request));
    }
    // Its place is the only one.
    int status = 503;
    for (int i = 0; i < 50 && status == 503; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const auto result = post("/v1/completions", R"({"prompt": "In the", "max_tokens": 1})");
      status = result->status;
      EXPECT_TRUE(status != 503 || result->get_header_value("Retry-After") == "1");
    }
    EXPECT_EQ(status, 200) << stream;
  }
}

}  // namespace
}  // namespace slipring::server
