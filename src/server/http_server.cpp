#include "server/http_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <httplib.h>
#include <thread>

#include <slipring/error.h>

#include "server/api_error.h"
#include "server/connection.h"
#include "server/metrics.h"
#include "server/page.h"
#include "server/worker_queue.h"

namespace slipring::server {
namespace {

using httplib::Request;
using httplib::Response;

constexpr const char* kJson = "application/json";
// A comment now and then keeps proxies from closing a stream while a long prompt is read.
constexpr std::chrono::seconds kKeepAlive{10};
constexpr std::chrono::milliseconds kPoll{100};
constexpr int64_t kMaxHeaderBytes = int64_t{64} << 10;

bool has_body(const Request& request) {
  return request.has_header("Transfer-Encoding") ||
         (request.has_header("Content-Length") && request.get_header_value("Content-Length") != "0");
}

void send_error(Response& response, const ApiError& error) {
  response.status = error.status();
  response.set_content(error.body(), kJson);
  if (error.status() == 503) response.set_header("Retry-After", "1");
  if (error.status() == 401) response.set_header("WWW-Authenticate", "Bearer");
}

constexpr const char* kReads = "GET, HEAD, OPTIONS";
constexpr const char* kTakes = "POST, OPTIONS";
struct Endpoint {
  const char* path;
  const char* methods;
};
constexpr std::array<Endpoint, 8> kEndpoints{{{"/v1/completions", kTakes},
                                              {"/v1/chat/completions", kTakes},
                                              {"/v1/models", kReads},
                                              {"/tokenize", kTakes},
                                              {"/detokenize", kTakes},
                                              {"/health", kReads},
                                              {"/metrics", kReads},
                                              {"/debug/rings", kReads}}};

bool is_page(const std::string& path) {
  const auto& files = page_files();
  return std::any_of(files.begin(), files.end(), [&path](const PageFile& file) { return file.path == path; });
}

/// What a path takes, as the header Allow has it; null for paths that nobody serves.
const char* methods_of(const std::string& path) {
  for (const Endpoint& endpoint : kEndpoints) {
    if (path == endpoint.path) return endpoint.methods;
  }
  return is_page(path) ? kReads : nullptr;
}

// Paths that nobody serves share one name, so that no client can fill the metrics.
std::string metric_path(const std::string& path) {
  for (const Endpoint& endpoint : kEndpoints) {
    if (path == endpoint.path) return path;
  }
  return is_page(path) ? "page" : "other";
}

/// Whether the path is served and takes the method; otherwise the response is complete.
bool route(const Request& request, Response& response) {
  const char* methods = methods_of(request.path);
  if (methods == nullptr) {
    send_error(response, {404, "not_found_error", "There is no " + request.path});
    return false;
  }
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (methods == kReads ? reads : request.method == "POST") return true;
  response.set_header("Allow", methods);
  send_error(response, {405, "invalid_request_error",
                        request.path + " takes " + (methods == kReads ? "GET" : "POST") + ", not " + request.method});
  return false;
}

ApiError as_api_error(const std::exception& error) {
  if (const auto* api = dynamic_cast<const ApiError*>(&error)) return *api;
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return ApiError::from(*ours);
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return {500, "server_error", "Out of memory"};
  return {500, "server_error", error.what()};
}

}  // namespace

struct HttpServer::Impl {
  Impl(Service& the_service, HttpOptions the_options) : service(the_service), options(std::move(the_options)) {}

  void configure();
  void add_routes();
  bool admit(const Request& request, Response& response) const;
  using Start = std::function<std::unique_ptr<ReplyStream>(const std::string&, bool& streamed)>;
  void reply(const Request& request, Response& response, const Start& start);
  void stream(Response& response, std::shared_ptr<ReplyStream> replies);
  void whole(Response& response, ReplyStream& replies);
  void observe(const ReplyStream& replies);
  void get(const char* path, const char* type, std::function<std::string()> body);
  void post(const char* path, std::function<std::string(const std::string&)> body);

  Service& service;
  HttpOptions options;
  ConnectionServer http;
  std::unique_ptr<WorkerQueue> workers;  // from bind() until run()
  Metrics metrics;
  std::atomic<int64_t> open_replies{0};
  std::atomic<bool> stopping{false};
};

// What one streamed reply needs from call to call of its content provider.
struct StreamState {
  std::shared_ptr<ReplyStream> replies;
  ChunkPrinter printer;
  const Connection* client;
  std::vector<bool> opened;
  std::chrono::steady_clock::time_point last_sent = std::chrono::steady_clock::now();
};

HttpServer::HttpServer(Service& service, const HttpOptions& options) : impl_(std::make_unique<Impl>(service, options)) {
  impl_->configure();
  impl_->add_routes();
}
HttpServer::~HttpServer() = default;

int HttpServer::bind() {
  const HttpOptions& options = impl_->options;
  impl_->workers = std::make_unique<WorkerQueue>(options.threads);
  const int port = options.port == 0                                      ? impl_->http.bind_to_any_port(options.host)
                   : impl_->http.bind_to_port(options.host, options.port) ? options.port
                                                                          : -1;
  if (port > 0) return port;
  throw Error(ErrorCode::io, {.where = options.host + ":" + std::to_string(options.port),
                              .expected = "an address that is free",
                              .got = "one that cannot be bound",
                              .advice = "choose another with --host and --port"});
}

void HttpServer::run() {
  // Returns once stop() was called and every connection is closed.
  impl_->http.listen_after_bind();
}

void HttpServer::stop() {
  impl_->stopping = true;
  impl_->service.drain(impl_->options.drain);
  // Replies hand over what they still have.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (impl_->open_replies > 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(kPoll);
  impl_->http.stop();
}

void HttpServer::Impl::configure() {
  http.new_task_queue = [this] { return workers.release(); };
  http.set_payload_max_length(static_cast<size_t>(options.max_body_bytes));
  http.limits.silence = options.silence_timeout;
  http.limits.request = options.request_timeout;
  http.limits.write = options.write_timeout;
  // Twice the body: one that is a little too large is read to its end, so that its client gets to see the 413.
  http.limits.request_bytes = 2 * options.max_body_bytes + kMaxHeaderBytes;
  http.idle = options.idle_timeout;
  http.set_keep_alive_max_count(1000);
  http.set_tcp_nodelay(true);
  http.set_pre_routing_handler([this](const Request& request, Response& response) {
    const bool admitted = admit(request, response) && route(request, response);
    // Only POST's bodies are read, and only of requests that are let in. Any other would be read as the next request.
    if (has_body(request) && (!admitted || request.method != "POST")) {
      Connection::current()->end_with_this();
      response.set_header("Connection", "close");
    }
    return admitted ? httplib::Server::HandlerResponse::Unhandled : httplib::Server::HandlerResponse::Handled;
  });
  http.set_exception_handler([](const Request&, Response& response, std::exception_ptr thrown) {
    try {
      std::rethrow_exception(std::move(thrown));
    } catch (const std::exception& error) {
      send_error(response, as_api_error(error));
    } catch (...) {
      send_error(response, {500, "server_error", "An error of unknown kind"});
    }
  });
  http.set_error_handler([this](const Request&, Response& response) {
    if (!response.body.empty()) return;
    const int status = response.status;
    if (status == 413) {
      send_error(response, {413, "invalid_request_error",
                            "The body is larger than " + std::to_string(options.max_body_bytes) + " bytes"});
    }
    if (status == 400 || status == 414 || status == 416 || status == 417) {
      send_error(response, {status, "invalid_request_error", "The request is not well-formed HTTP"});
    }
  });
  http.set_logger([this](const Request& request, const Response& response) {
    metrics.count_request(metric_path(request.path), response.status);
  });
}

// Headers, then host, origin and key, in this order; false once the response is complete.
bool HttpServer::Impl::admit(const Request& request, Response& response) const {
  const std::string origin = request.get_header_value("Origin");
  const std::string host = request.get_header_value("Host");
  response.set_header("X-Content-Type-Options", "nosniff");
  const std::string allowed = allow_origin(options.access, origin);
  if (!allowed.empty()) {
    response.set_header("Access-Control-Allow-Origin", allowed);
    response.set_header("Vary", "Origin");
  }
  if (!host_accepted(options.access, host)) {
    send_error(response, {403, "permission_error", "This server does not answer to that host name; see --allow-host"});
    return false;
  }
  if (request.method == "OPTIONS") {
    response.status = 204;
    if (const char* methods = methods_of(request.path)) response.set_header("Allow", methods);
    if (!allowed.empty()) {
      response.set_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
      response.set_header("Access-Control-Allow-Headers", "Authorization, Content-Type");
      response.set_header("Access-Control-Max-Age", "600");
    }
    return false;
  }
  if (!origin_accepted(options.access, origin, host)) {
    send_error(response, {403, "permission_error", "Pages of other sites may not call this server; see --cors"});
    return false;
  }
  if (!is_public(request.method, request.path) &&
      !key_accepted(options.access, request.get_header_value("Authorization"))) {
    send_error(response, {401, "authentication_error", "A valid API key is needed: Authorization: Bearer KEY", "",
                          "invalid_api_key"});
    return false;
  }
  return true;
}

void HttpServer::Impl::get(const char* path, const char* type, std::function<std::string()> body) {
  http.Get(path, [type, body = std::move(body)](const Request&, Response& response) {
    response.set_header("Cache-Control", "no-store");
    response.set_content(body(), type);
  });
}

void HttpServer::Impl::post(const char* path, std::function<std::string(const std::string&)> body) {
  http.Post(path, [body = std::move(body)](const Request& request, Response& response) {
    response.set_content(body(request.body), kJson);
  });
}

void HttpServer::Impl::add_routes() {
  for (const PageFile& file : page_files()) {
    http.Get(std::string(file.path), [file](const Request&, Response& response) {
      response.set_header("Cache-Control", "no-cache");
      response.set_header("Content-Security-Policy",
                          "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
                          "frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
      response.set_content(file.content.data(), file.content.size(), std::string(file.content_type));
    });
  }
  get("/health", kJson, [this] { return service.health(); });
  get("/v1/models", kJson, [this] { return service.models(); });
  get("/debug/rings", kJson, [this] { return service.rings(); });
  get("/metrics", "text/plain; version=0.0.4", [this] { return metrics.print(service.view()); });
  post("/tokenize", [this](const std::string& body) { return service.tokenize(parse_tokenize(body)); });
  post("/detokenize", [this](const std::string& body) { return service.detokenize(parse_detokenize(body)); });
  http.Post("/v1/completions", [this](const Request& request, Response& response) {
    reply(request, response, [this](const std::string& body, bool& streamed) {
      const CompletionRequest wire = parse_completion(body);
      streamed = wire.stream;
      return service.complete(wire);
    });
  });
  http.Post("/v1/chat/completions", [this](const Request& request, Response& response) {
    reply(request, response, [this](const std::string& body, bool& streamed) {
      const ChatRequest wire = parse_chat(body);
      streamed = wire.stream;
      return service.chat(wire);
    });
  });
}

void HttpServer::Impl::reply(const Request& request, Response& response, const Start& start) {
  if (stopping) {
    send_error(response, {503, "server_busy", "The server is stopping"});
    return;
  }
  bool streamed = false;
  std::unique_ptr<ReplyStream> replies = start(request.body, streamed);
  if (streamed) {
    stream(response, std::move(replies));
  } else {
    whole(response, *replies);
  }
}

void HttpServer::Impl::observe(const ReplyStream& replies) {
  metrics.observe_reply(replies.first_token_seconds(), replies.seconds(), replies.usage().prompt_tokens,
                        replies.usage().completion_tokens);
}

void HttpServer::Impl::whole(Response& response, ReplyStream& replies) {
  WholeReply body(replies.head(), replies.choices());
  ++open_replies;
  const std::shared_ptr<void> count(nullptr, [this](void*) { --open_replies; });
  while (!replies.done()) {
    if (const auto piece = replies.next(kPoll)) body.add(*piece);
    if (!Connection::current()->gone()) continue;
    replies.cancel();
    response.status = 499;  // nobody reads it
    return;
  }
  observe(replies);
  response.set_content(body.print(replies.usage()), kJson);
}

void HttpServer::Impl::stream(Response& response, std::shared_ptr<ReplyStream> replies) {
  const auto state =
      std::make_shared<StreamState>(StreamState{replies, ChunkPrinter(replies->head()), Connection::current(),
                                                std::vector<bool>(static_cast<size_t>(replies->choices()), false)});
  ++open_replies;
  const std::shared_ptr<void> count(nullptr, [this](void*) { --open_replies; });
  response.set_header("Cache-Control", "no-store");
  response.set_header("X-Accel-Buffering", "no");
  const auto provide = [this, state, count](size_t, httplib::DataSink& sink) {
    const auto send = [&](const std::string& text) {
      state->last_sent = std::chrono::steady_clock::now();
      return sink.write(text.data(), text.size());
    };
    const auto event = [](const std::string& json) { return "data: " + json + "\n\n"; };
    ReplyStream& all = *state->replies;
    if (state->client->gone()) {
      all.cancel();
      return false;
    }
    std::string out;
    try {
      const auto piece = all.next(kPoll);
      if (piece) {
        const auto index = static_cast<size_t>(piece->choice);
        if (all.head().chat && !state->opened[index]) out += event(state->printer.opening(piece->choice));
        state->opened[index] = true;
        out += event(state->printer.piece(*piece));
      }
    } catch (const std::exception& error) {
      // The status is long sent; the stream says what happened.
      all.cancel();
      send(event(as_api_error(error).body()) + "data: [DONE]\n\n");
      sink.done();
      return true;
    }
    if (all.done()) {
      if (all.head().usage_in_stream) out += event(state->printer.usage(all.usage()));
      out += "data: [DONE]\n\n";
      observe(all);
    } else if (out.empty() && std::chrono::steady_clock::now() - state->last_sent > kKeepAlive) {
      out = ": working\n\n";
    }
    if (!out.empty() && !send(out)) {
      all.cancel();
      return false;
    }
    if (all.done()) sink.done();
    return true;
  };
  response.set_chunked_content_provider("text/event-stream", provide, [state](bool) { state->replies->cancel(); });
}

}  // namespace slipring::server
