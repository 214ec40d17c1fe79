// The server from outside, over sockets: statuses, access in the right order, streams equal to whole replies.
#include <functional>

#include "http_fixture.h"

namespace slipring::server {
namespace {

TEST_F(Http, AccessInTheRightOrder) {
  start({.api_keys = {"k"}, .allowed_hosts = {}, .cors_origins = {"https://app.example"}});
  auto http = client();
  const httplib::Headers foreign = {{"Origin", "https://app.example"}};
  EXPECT_EQ(http.Options("/v1/chat/completions", foreign)->status, 204);
  EXPECT_EQ(http.Get("/health")->status, 200);
  EXPECT_EQ(http.Get("/")->status, 200);
  EXPECT_EQ(http.Post("/health", "", "text/plain")->status, 401);
  EXPECT_EQ(http.Delete("/health")->status, 401);
  EXPECT_EQ(http.Get("/metrics")->status, 401);
  EXPECT_EQ(http.Get("/v1/models?api_key=k&Authorization=Bearer%20k")->status, 401);
  const auto refused = http.Get("/v1/models", foreign);
  EXPECT_EQ(refused->status, 401);
  EXPECT_EQ(refused->get_header_value("Access-Control-Allow-Origin"), "https://app.example");
  EXPECT_FALSE(refused->has_header("Access-Control-Allow-Credentials"));
  EXPECT_EQ(http.Get("/v1/models", {{"Authorization", "Bearer k"}})->status, 200);
  for (const char* wrong : {"Bearer  k", "bearer key", "Bearer ", "Bearer k k"}) {
    EXPECT_EQ(http.Get("/v1/models", {{"Authorization", wrong}})->status, 401) << wrong;
  }
  EXPECT_EQ(http.Get("/v1/models", {{"Authorization", "Bearer k"}, {"Origin", "null"}})->status, 403);
  const auto evil = http.Get("/v1/models", {{"Authorization", "Bearer k"}, {"Origin", "https://evil.example"}});
  EXPECT_EQ(evil->status, 403);
  EXPECT_FALSE(evil->has_header("Access-Control-Allow-Origin"));
  EXPECT_EQ(http.Get("/health", {{"Host", "evil.example"}})->status, 403);
}

TEST_F(Http, StatusesOfWhatIsNotThere) {
  start();
  auto http = client();
  for (const auto& [result, status] : {std::pair(http.Get("/nothing"), 404),
                                       {http.Get("/v1/completions"), 405},
                                       {http.Post("/health", "", "text/plain"), 405},
                                       {post("/v1/completions", "[]"), 400},
                                       {post("/v1/chat/completions", ""), 400},
                                       {post("/v1/completions", std::string(2 << 20, ' ')), 413}}) {
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, status);
    EXPECT_TRUE(Json::parse(result->body)["error"]["message"].is_string()) << result->body;
  }
}

TEST_F(Http, OtherMethodsOfKnownPathsSayWhichAreTaken) {
  start();
  auto http = client();
  const auto ask = [&http](const char* method, const char* path) {
    httplib::Request request;
    request.method = method;
    request.path = path;
    const auto result = http.send(request);
    EXPECT_TRUE(result) << method << " " << path;
    return result ? *result : httplib::Response{};
  };
  for (const char* path : {"/health", "/v1/models", "/metrics", "/debug/rings", "/", "/app.js"}) {
    for (const char* method : {"POST", "PUT", "PATCH", "DELETE", "TRACE"}) {
      const auto response = ask(method, path);
      EXPECT_EQ(response.status, 405) << method << " " << path;
      EXPECT_EQ(response.get_header_value("Allow"), "GET, HEAD, OPTIONS") << method << " " << path;
    }
    EXPECT_EQ(ask("HEAD", path).status, 200) << path;
    EXPECT_EQ(ask("OPTIONS", path).get_header_value("Allow"), "GET, HEAD, OPTIONS") << path;
  }
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"}) {
    for (const char* method : {"GET", "HEAD", "PUT", "PATCH", "DELETE"}) {
      const auto response = ask(method, path);
      EXPECT_EQ(response.status, 405) << method << " " << path;
      EXPECT_EQ(response.get_header_value("Allow"), "POST, OPTIONS") << method << " " << path;
    }
  }
  for (const char* method : {"GET", "POST", "PUT", "DELETE", "TRACE"}) EXPECT_EQ(ask(method, "/appxjs").status, 404);
}

// A path is bytes, JSON is not.
TEST_F(Http, ANameThatIsNoTextIsMendedEverywhere) {
  SchedulerOptions options;
  options.session.context = 64;
  Service service(Model::load(""), "t\xffny", options, "");
  EXPECT_EQ(Json::parse(service.models())["data"][0]["id"], "t\uFFFDny");
  EXPECT_EQ(service.complete(parse_completion(R"({"prompt": "a", "max_tokens": 1})"))->head().model, "t\uFFFDny");
}

TEST_F(Http, PromptsAndLimitsAtTheContextsEdge) {
  start({}, 64);
  const auto prompt = [](int count) { return Json(std::vector<int>(static_cast<size_t>(count), 300)).dump(); };
  for (const int count : {64, 65, 500}) {
    const Json error = complete("{\"prompt\": " + prompt(count) + "}", 400)["error"];
    EXPECT_EQ(error["code"], "context_length_exceeded");
    EXPECT_NE(error["message"].get<std::string>().find("64"), std::string::npos);
    EXPECT_NE(error["message"].get<std::string>().find(std::to_string(count)), std::string::npos);
  }
  for (const int count : {62, 63}) {
    const Json reply = complete("{\"temperature\": 0, \"prompt\": " + prompt(count) + "}");
    EXPECT_EQ(reply["usage"]["prompt_tokens"], count);
    EXPECT_LE(reply["usage"]["total_tokens"], 64);
    EXPECT_TRUE(reply["usage"]["completion_tokens"] < 64 - count || reply["choices"][0]["finish_reason"] == "length");
  }
  for (const char* limit : {"0", "1", "3"}) {
    const Json reply = complete(std::string(R"({"prompt": "In the", "temperature": 0, "max_tokens": )") + limit + "}");
    EXPECT_EQ(reply["usage"]["completion_tokens"].dump(), limit);
    EXPECT_EQ(reply["choices"][0]["finish_reason"], "length");
  }
  EXPECT_LE(complete(R"({"prompt": "In the", "max_tokens": 9223372036854775808})")["usage"]["total_tokens"], 64);
  // Empty prompts are BOS alone, however they are spelled, and the server lives on.
  for (const char* empty : {"\"\"", "[]", "[[]]", "[\"\"]"}) {
    EXPECT_EQ(complete(std::string(R"({"max_tokens": 1, "prompt": )") + empty + "}")["usage"]["prompt_tokens"], 1)
        << empty;
  }
  complete(R"({"prompt": [4096]})", 400);
  complete(R"({"prompt": "a", "logit_bias": {"4096": 1}})", 400);
}

class HttpStreams : public Http {
 protected:
  void expect_streams_are_whole_replies() const;
};

void HttpStreams::expect_streams_are_whole_replies() const {
  const char* const fields[] = {
      R"("temperature": 0, "max_tokens": 12)", R"("seed": 5, "max_tokens": 20, "logprobs": 3)",
      R"("seed": 6, "stop": ["e", "th"], "max_tokens": 30)", R"("seed": 7, "n": 3, "max_tokens": 9)",
      R"("prompt": ["And", "God"], "max_tokens": 5, "temperature": 0)"};
  for (const std::string field : fields) {
    SCOPED_TRACE(field);
    const std::string body = R"({"prompt": "In the beginning", )" + field;
    const Json whole = complete(body + "}");
    std::vector<std::string> texts(whole["choices"].size());
    std::vector<std::string> ends(texts.size());
    std::vector<Json> logprobs(texts.size(), Json::array());
    const auto streamed =
        post("/v1/completions", body + R"(, "stream": true, "stream_options": {"include_usage": true}})");
    auto found = events(streamed->body);
    ASSERT_GE(found.size(), 2U);
    EXPECT_EQ(found.back(), "[DONE]");
    found.pop_back();
    const Json usage = Json::parse(found.back());
    EXPECT_TRUE(usage["choices"].empty());
    for (const char* count : {"prompt_tokens", "completion_tokens", "total_tokens"}) {
      EXPECT_EQ(usage["usage"][count], whole["usage"][count]);
    }
    found.pop_back();
    for (const std::string& event : found) {
      const Json choice = Json::parse(event)["choices"][0];
      const auto index = choice["index"].get<size_t>();
      texts[index] += choice["text"].get<std::string>();
      if (!choice["finish_reason"].is_null()) ends[index] = choice["finish_reason"];
      if (!choice["logprobs"].is_null()) {
        for (const Json& value : choice["logprobs"]["token_logprobs"]) logprobs[index].push_back(value);
      }
    }
    int64_t tokens = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(texts[i], whole["choices"][i]["text"]);
      EXPECT_EQ(ends[i], whole["choices"][i]["finish_reason"]);
      if (whole["choices"][i]["logprobs"].is_null()) continue;
      EXPECT_EQ(logprobs[i], whole["choices"][i]["logprobs"]["token_logprobs"]);
      tokens += static_cast<int64_t>(logprobs[i].size());
      EXPECT_EQ(tokens, whole["usage"]["completion_tokens"]);
    }
  }
  // Without the wish there is no usage chunk.
  const auto plain = events(post("/v1/completions", R"({"prompt": "a", "max_tokens": 2, "stream": true})")->body);
  for (const std::string& event : plain) EXPECT_EQ(event.find("usage"), std::string::npos);
}

TEST_F(HttpStreams, AreWholeReplies) {
  start({}, 128);
  expect_streams_are_whole_replies();
}

TEST_F(HttpStreams, AreWholeRepliesWithADrafterToo) {
  start({}, 128, 4, 8, std::chrono::seconds(30), true);
  expect_streams_are_whole_replies();
}

TEST_F(Http, WhatEndsAReplyAtItsLimit) {
  start({}, 128);
  const auto complete_with = [this](const std::string& fields) {
    const Json reply = complete(R"({"prompt": "In the beginning", "temperature": 0, )" + fields + "}");
    return std::pair(reply["choices"][0], reply["usage"]["completion_tokens"].get<int>());
  };
  // A stop string that the very last allowed token completes.
  const auto [plain, tokens] = complete_with(R"("max_tokens": 6, "logprobs": 0)");
  ASSERT_EQ(tokens, 6);
  const Json last = plain["logprobs"]["tokens"][5];
  const auto [stopped, same] = complete_with("\"max_tokens\": 6, \"stop\": " + last.dump());
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_LE(same, 6);
  EXPECT_EQ(stopped["text"].get<std::string>().find(last.get<std::string>()), std::string::npos);
  // The model's own end, forced: it needs no room of its own, and counts as no token.
  const auto [ended, none] = complete_with(R"("max_tokens": 1, "logit_bias": {"4092": 100, "1": 100})");
  EXPECT_EQ(ended["finish_reason"], "stop");
  EXPECT_EQ(none, 0);
  EXPECT_EQ(complete_with(R"("max_tokens": 6)").first["finish_reason"], "length");
}

TEST_F(Http, Chat) {
  start({}, 128);
  const auto chat = [this](const std::string& messages, const std::string& more = "") {
    const auto result = post("/v1/chat/completions",
                             "{\"messages\": " + messages + ", \"max_tokens\": 4, \"temperature\": 0" + more + "}");
    return std::pair(result->status, Json::parse(result->body));
  };
  const auto [status, reply] =
      chat(R"([{"role": "user", "content": "In the"}])", R"(, "logprobs": true, "top_logprobs": 2)");
  EXPECT_EQ(status, 200);
  EXPECT_EQ(reply["object"], "chat.completion");
  EXPECT_EQ(reply["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(reply["choices"][0]["logprobs"]["content"].size(), reply["usage"]["completion_tokens"]);
  const auto [refused, error] = chat(R"([{"role": "system", "content": "x"}])");
  EXPECT_EQ(refused, 400);
  EXPECT_NE(error["error"]["message"].get<std::string>().find("No system role here"), std::string::npos);
  for (const char* turns : {R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])",
                            R"([{"role": "tool", "content": "a"}])", R"([{"role": "assistant", "content": "a"}])"}) {
    const auto [answer, refusal] = chat(turns);
    EXPECT_EQ(answer, 400) << turns;
    EXPECT_NE(refusal["error"]["message"].get<std::string>().find("Roles must alternate"), std::string::npos);
  }
  EXPECT_EQ(chat(R"([{"role": "user", "content": ""}])").first, 200);
  EXPECT_EQ(
      chat(R"([{"role": "user", "content": [{"type": "text", "text": "In the"}]}])").second["choices"][0]["message"],
      reply["choices"][0]["message"]);
  const auto streamed = events(post("/v1/chat/completions", R"({"stream": true, "max_tokens": 4, "temperature": 0,
    "messages": [{"role": "user", "content": "In the"}]})")
                                   ->body);
  EXPECT_EQ(Json::parse(streamed[0])["choices"][0]["delta"]["role"], "assistant");
  std::string text;
  for (size_t i = 0; i + 1 < streamed.size(); ++i)
    text += Json::parse(streamed[i])["choices"][0]["delta"].value("content", "");
  EXPECT_EQ(text, reply["choices"][0]["message"]["content"]);
}

TEST_F(Http, TokenizeRingsAndMetrics) {
  start({}, 128);
  const Json tokens = Json::parse(post("/tokenize", R"({"content": "In the beginning <|eot|>"})")->body)["tokens"];
  for (const Json& id : tokens) EXPECT_NE(id, 4092);
  EXPECT_EQ(Json::parse(post("/detokenize", Json({{"tokens", tokens}}).dump())->body)["content"],
            "In the beginning <|eot|>");
  EXPECT_EQ(post("/detokenize", R"({"tokens": [99999]})")->status, 400);
  complete(R"({"prompt": "In the", "max_tokens": 3})");
  const Json rings = Json::parse(client().Get("/debug/rings")->body);
  EXPECT_EQ(rings["layers"].size(), 8U);
  EXPECT_EQ(rings["layers"][0]["capacity"], 128);
  EXPECT_EQ(rings["layers"][3]["kind"], "full");
  client().Get("/anything/at/all");
  client().Get("/anything/else", {{"Host", "evil.example"}});
  const std::string metrics = client().Get("/metrics")->body;
  EXPECT_EQ(metrics.find("anything"), std::string::npos);
  EXPECT_NE(metrics.find("slipring_generated_tokens_total 3"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("slipring_http_requests_total{path=\"/v1/completions\",status=\"200\"} 1"), std::string::npos);
}

TEST_F(Http, WhatWasComputedBeforeIsCounted) {
  start({}, 512);
  const auto cached = [](const Json& reply) { return reply["usage"]["prompt_tokens_details"]["cached_tokens"]; };
  const std::string prompt = Json(std::vector<int>(200, 300)).dump();
  const std::string fields = ", \"temperature\": 0, \"max_tokens\": 4}";
  const Json first = complete("{\"prompt\": " + prompt + fields);
  EXPECT_EQ(cached(first), 0);
  const Json again = complete("{\"prompt\": " + prompt + fields);
  EXPECT_EQ(cached(again), 199);
  EXPECT_EQ(again["choices"], first["choices"]);
  // Two turns of a conversation.
  const auto chat = [this](const Json& messages) {
    const Json body = {{"messages", messages}, {"temperature", 0}, {"max_tokens", 8}};
    return Json::parse(post("/v1/chat/completions", body.dump())->body);
  };
  Json messages = Json::array({{{"role", "user"}, {"content", "And it came to pass in those days that"}}});
  const Json turn = chat(messages);
  messages.push_back(turn["choices"][0]["message"]);
  messages.push_back({{"role", "user"}, {"content", "and then"}});
  EXPECT_GE(cached(chat(messages)), turn["usage"]["prompt_tokens"].get<int>() - 1);
  const std::string metrics = client().Get("/metrics")->body;
  EXPECT_NE(metrics.find("slipring_prefix_hits_total 2"), std::string::npos) << metrics;
}

}  // namespace
}  // namespace slipring::server
