// A server on a port of its own, in this process, with the embedded model, and a client of it.
#pragma once

#include <gtest/gtest.h>
#include <httplib.h>
#include <nlohmann/json.hpp>
#include <thread>

#include "server/http_server.h"

namespace slipring::server {

using Json = nlohmann::ordered_json;

// As strict as Gemma's.
inline constexpr const char* kTemplate =
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('No system role here') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "{{ m.content }} {% endfor %}";

class Http : public ::testing::Test {
 protected:
  void start(AccessRules access = {}, int64_t context = 64, int64_t running = 4, int64_t queued = 8,
             std::chrono::seconds request_timeout = std::chrono::seconds(30), bool drafts = false) {
    static const auto model = Model::load("");
    static const MakeDrafts make_drafts = load_dflash_drafter(default_drafter_path(), model, 2);
    SchedulerOptions options;
    if (drafts) options.make_drafts = make_drafts;
    options.session.context = context;
    options.session.threads = 2;
    options.max_running = running;
    options.max_queued = queued;
    service_ = std::make_unique<Service>(model, "tiny", options, kTemplate);
    HttpOptions http;
    http.port = 0;
    http.threads = 32;
    http.max_body_bytes = 1 << 20;
    http.access = std::move(access);
    http.drain = std::chrono::seconds(5);
    http.idle_timeout = std::chrono::seconds(1);
    http.request_timeout = request_timeout;
    server_ = std::make_unique<HttpServer>(*service_, http);
    port_ = server_->bind();
    thread_ = std::thread([this] { server_->run(); });
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    server_->stop();
    thread_.join();
  }
  httplib::Client client() const {
    httplib::Client client("127.0.0.1", port_);
    client.set_read_timeout(60);
    return client;
  }
  httplib::Result post(const std::string& path, const std::string& body, const httplib::Headers& headers = {}) const {
    return client().Post(path, headers, body, "application/json");
  }
  Json complete(const std::string& body, int status = 200) const {
    const auto result = post("/v1/completions", body);
    EXPECT_TRUE(result) << body;
    if (!result) return {};
    EXPECT_EQ(result->status, status) << result->body;
    return Json::parse(result->body);
  }
  // The data of a stream's events.
  static std::vector<std::string> events(const std::string& body) {
    std::vector<std::string> found;
    for (size_t at = body.find("data: "); at != std::string::npos; at = body.find("data: ", at)) {
      const size_t end = body.find("\n\n", at);
      found.push_back(body.substr(at + 6, end - at - 6));
      at = end;
    }
    return found;
  }

  std::unique_ptr<Service> service_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  int port_ = 0;
};

}  // namespace slipring::server
