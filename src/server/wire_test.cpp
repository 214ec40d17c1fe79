// Bodies: what is refused and why, what null means, and what replies look like.
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/api_error.h"
#include "server/wire_reply.h"
#include "server/wire_request.h"

namespace slipring::server {
namespace {

using Json = nlohmann::ordered_json;

// "400 param: message", or "fine".
std::string outcome(const std::function<void()>& call) {
  try {
    call();
    return "fine";
  } catch (const ApiError& error) {
    const Json json = Json::parse(error.body())["error"];
    EXPECT_EQ(json["type"], "invalid_request_error");
    EXPECT_FALSE(json["message"].get<std::string>().empty());
    return std::to_string(error.status()) + " " + (json["param"].is_null() ? "" : json["param"].get<std::string>());
  }
}
std::string chat_outcome(const std::string& body) {
  return outcome([&body] { parse_chat(body); });
}
std::string completion_outcome(const std::string& body) {
  return outcome([&body] { parse_completion(body); });
}
// A chat body with one more field.
std::string with(const std::string& field) {
  return R"({"messages": [{"role": "user", "content": "a"}], )" + field + "}";
}

TEST(WireRequest, BodiesThatAreNoObjects) {
  for (const char* body :
       {"", "x", "\"x\"", "[]", "1", "null", "{", "{\"a\":1}}", "{\"a\": \"\xff\"}", "\xef\xbb\xbf"}) {
    EXPECT_EQ(chat_outcome(body), "400 ") << body;
    EXPECT_EQ(completion_outcome(body), "400 ") << body;
  }
  EXPECT_EQ(chat_outcome("{\"x\":" + std::string(100000, '[') + std::string(100000, ']') + "}"), "400 ");
}

TEST(WireRequest, Messages) {
  for (const char* body :
       {"{}", R"({"messages": null})", R"({"messages": []})", R"({"messages": {}})", R"({"messages": "x"})"}) {
    EXPECT_EQ(chat_outcome(body), "400 messages") << body;
  }
  const auto message = [](const std::string& fields) { return chat_outcome(R"({"messages": [)" + fields + "]}"); };
  EXPECT_EQ(message("1"), "400 messages[0]");
  EXPECT_EQ(message("{}"), "400 messages[0].role");
  EXPECT_EQ(message(R"({"role": 1, "content": "a"})"), "400 role");
  EXPECT_EQ(message(R"({"role": "user"})"), "400 messages[0].content");
  EXPECT_EQ(message(R"({"role": "user", "content": null})"), "400 messages[0].content");
  EXPECT_EQ(message(R"({"role": "user", "content": 5})"), "400 messages[0].content");
  EXPECT_EQ(message(R"({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]})"),
            "400 messages[0].content");
  EXPECT_EQ(message(R"({"role": "assistant", "content": null, "tool_calls": [1]})"), "400 messages[0].tool_calls");
  // The template decides about these.
  for (const char* fine : {R"({"role": "user", "content": ""})", R"({"role": "user", "content": []})",
                           R"({"role": "tool", "content": "x"})", R"({"role": "assistant", "content": null})"}) {
    EXPECT_EQ(message(fine), "fine") << fine;
  }
}

TEST(WireRequest, ContentsBecomeTextAndArgumentsObjects) {
  const ChatRequest request = parse_chat(R"({"messages": [
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": null},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
      "function": {"name": "f", "arguments": "{\"x\": [1]}"}}]}]})");
  const Json messages = Json::parse(request.messages);
  EXPECT_EQ(messages[0], Json::parse(R"({"role": "user", "content": "ab"})"));
  EXPECT_EQ(messages[1]["content"], "");
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["arguments"], Json::parse(R"({"x": [1]})"));
}

TEST(WireRequest, WordsAreOurs) {
  const auto words = [](const std::string& body) -> std::string {
    try {
      parse_completion(body);
      return "fine";
    } catch (const ApiError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(words(R"({"prompt": "x", "seed": 1.5})"), "'seed' must be a whole number, not 1.5");
  EXPECT_EQ(words(R"({"prompt": "x", "seed": "1"})"), "'seed' must be a whole number, not string");
  EXPECT_EQ(words(R"({"prompt": x})"), "The body is not valid JSON at byte 12");
  EXPECT_EQ(words(R"({"prompt": "x")"), "The body is not valid JSON: it ends too early, after 14 bytes");
  EXPECT_EQ(words(""), "The body is not valid JSON: it ends too early, after 0 bytes");
  EXPECT_EQ(words("{\"prompt\": \"\xff\"}"), "The body is not valid JSON at byte 13");
  EXPECT_EQ(words(R"({"prompt": "x", "seed": 1e999})"), "The body holds a number that is too large");
}

TEST(WireRequest, NullIsAbsentAndUnknownIsIgnored) {
  const char* names[] = {"model",
                         "max_tokens",
                         "max_completion_tokens",
                         "n",
                         "stop",
                         "stream",
                         "stream_options",
                         "temperature",
                         "top_p",
                         "top_k",
                         "min_p",
                         "presence_penalty",
                         "frequency_penalty",
                         "repeat_penalty",
                         "logit_bias",
                         "seed",
                         "logprobs",
                         "top_logprobs",
                         "tools",
                         "tool_choice",
                         "response_format",
                         "reasoning_effort",
                         "chat_template_kwargs",
                         "echo",
                         "suffix",
                         "best_of",
                         "user",
                         "anything"};
  std::string all = R"({"messages": [{"role": "user", "content": "a"}], "prompt": "a")";
  for (const char* name : names) all += std::string(", \"") + name + "\": null";
  all += "}";
  const ChatRequest chat = parse_chat(all);
  const ChatRequest plain = parse_chat(R"({"messages": [{"role": "user", "content": "a"}]})");
  EXPECT_FALSE(chat.max_tokens || chat.logprobs || chat.seed || chat.stream);
  EXPECT_EQ(chat.sampling.temperature, plain.sampling.temperature);
  EXPECT_EQ(chat.tools + chat.variables, "");
  EXPECT_EQ(completion_outcome(all), "fine");
  EXPECT_EQ(chat_outcome(with(R"("unknown": {"deep": [1, {"x": null}]}, "store": true, "metadata": {})")), "fine");
  // Of duplicates the last counts, as in most JSON readers.
  EXPECT_EQ(parse_chat(with(R"("n": 2, "n": 3)")).n, 3);
}

// The parser of ordered objects compares each key with all before it; one of a list must not be looked at for every
// object in it either. Both were quadratic: half a minute for this.
TEST(WireRequest, ManyObjectsAreReadAndManyKeysRefused) {
  std::string objects = "{}";
  std::string keys = "\"k\": 1";
  for (int i = 0; i < 200'000; ++i) objects += ",{}";
  for (int i = 0; i < 10'000; ++i) keys += ",\"" + std::to_string(i) + "\": 1";
  EXPECT_EQ(chat_outcome(with("\"metadata\": [" + objects + "]")), "fine");
  EXPECT_EQ(chat_outcome(with("\"metadata\": {" + keys + "}")), "400 ");
}

TEST(WireRequest, TokenLimits) {
  const auto limit = [](const std::string& fields) { return parse_chat(with(fields)).max_tokens; };
  EXPECT_EQ(limit(R"("max_tokens": 0)"), 0);
  EXPECT_EQ(limit(R"("max_tokens": 1)"), 1);
  EXPECT_EQ(limit(R"("max_tokens": 5.0)"), 5);
  EXPECT_EQ(limit(R"("max_tokens": 2147483648)"), 2147483648);
  EXPECT_EQ(limit(R"("max_tokens": 9223372036854775808)"), INT64_MAX);
  EXPECT_EQ(limit(R"("max_tokens": null)"), std::nullopt);
  EXPECT_EQ(limit(R"("max_completion_tokens": 3)"), 3);
  EXPECT_EQ(limit(R"("max_completion_tokens": 3, "max_tokens": 9)"), 3);
  for (const char* wrong : {"-1", "\"5\"", "1.5", "true", "[]", "-9223372036854775808", "1e400"}) {
    const std::string got = chat_outcome(with(std::string("\"max_tokens\": ") + wrong));
    EXPECT_TRUE(got == "400 max_tokens" || got == "400 ") << wrong << ": " << got;
  }
}

TEST(WireRequest, Stops) {
  EXPECT_EQ(parse_chat(with(R"("stop": "x")")).stop, std::vector<std::string>{"x"});
  EXPECT_EQ(parse_chat(with(R"("stop": ["x", "yz"])")).stop, (std::vector<std::string>{"x", "yz"}));
  EXPECT_TRUE(parse_chat(with(R"("stop": [])")).stop.empty());
  std::string many = "\"a\"";
  for (int i = 0; i < 5000; ++i) many += ", \"a\"";
  const std::string wrong[] = {
      "\"\"", "[\"\"]", "1", "[1]", "{}", "[" + many + "]", "\"" + std::string(2000, 'x') + "\""};
  for (const std::string& stop : wrong) EXPECT_EQ(chat_outcome(with("\"stop\": " + stop)), "400 stop");
}

TEST(WireRequest, Logprobs) {
  const auto chat = [](const std::string& fields) { return parse_chat(with(fields)).logprobs; };
  EXPECT_EQ(chat(R"("logprobs": true)"), 0);
  EXPECT_EQ(chat(R"("logprobs": true, "top_logprobs": 0)"), 0);
  EXPECT_EQ(chat(R"("logprobs": true, "top_logprobs": 20)"), 20);
  EXPECT_EQ(chat(R"("logprobs": false)"), std::nullopt);
  EXPECT_EQ(chat_outcome(with(R"("logprobs": true, "top_logprobs": 21)")), "400 top_logprobs");
  EXPECT_EQ(chat_outcome(with(R"("top_logprobs": 5)")), "400 top_logprobs");
  EXPECT_EQ(chat_outcome(with(R"("logprobs": 5)")), "400 logprobs");
  EXPECT_EQ(parse_completion(R"({"prompt": "a", "logprobs": 0})").logprobs, 0);
  EXPECT_EQ(completion_outcome(R"({"prompt": "a", "logprobs": true})"), "400 logprobs");
}

TEST(WireRequest, SamplingFields) {
  const auto sampling = parse_chat(with(R"("temperature": 0.5, "top_p": 0.9, "presence_penalty": -2, "seed": -1,
    "logit_bias": {"5": 1.5, "6": -100}, "repetition_penalty": 1.2)"));
  EXPECT_EQ(sampling.sampling.temperature, 0.5);
  EXPECT_EQ(sampling.sampling.repeat_penalty, 1.2);
  ASSERT_EQ(sampling.sampling.logit_bias.size(), 2U);
  EXPECT_EQ(sampling.sampling.logit_bias[0].second, 1.5F);
  EXPECT_LT(sampling.sampling.logit_bias[1].second, -1e30F);
  EXPECT_EQ(chat_outcome(with(R"("temperature": 3)")), "400 temperature");
  EXPECT_EQ(chat_outcome(with(R"("temperature": "1")")), "400 temperature");
  EXPECT_EQ(chat_outcome(with(R"("top_p": -0.1)")), "400 top_p");
  EXPECT_EQ(chat_outcome(with(R"("n": 0)")), "400 n");
  EXPECT_EQ(chat_outcome(with(R"("n": 17)")), "400 n");
  EXPECT_EQ(chat_outcome(with(R"("logit_bias": {"x": 1})")), "400 logit_bias");
  EXPECT_EQ(chat_outcome(with(R"("logit_bias": {"-1": 1})")), "400 logit_bias");
  EXPECT_EQ(chat_outcome(with(R"("logit_bias": {"1": 101})")), "400 logit_bias");
  EXPECT_EQ(chat_outcome(with(R"("stream_options": {"include_usage": true})")), "400 stream_options");
  EXPECT_EQ(chat_outcome(with(R"("response_format": {"type": "json_object"})")), "400 response_format");
}

TEST(WireRequest, Prompts) {
  const auto prompts = [](const std::string& prompt) {
    return parse_completion("{\"prompt\": " + prompt + "}").prompts;
  };
  EXPECT_EQ(prompts("\"a\"").size(), 1U);
  EXPECT_EQ(prompts("[\"a\", \"b\"]").size(), 2U);
  EXPECT_EQ(std::get<std::vector<TokenId>>(prompts("[1, 2]")[0]), (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(std::get<std::vector<TokenId>>(prompts("[[1], [2, 3]]")[1]), (std::vector<TokenId>{2, 3}));
  // All spellings of an empty prompt arrive as one.
  EXPECT_EQ(std::get<std::string>(prompts("\"\"")[0]), "");
  EXPECT_TRUE(std::get<std::vector<TokenId>>(prompts("[]")[0]).empty());
  EXPECT_TRUE(std::get<std::vector<TokenId>>(prompts("[[]]")[0]).empty());
  EXPECT_EQ(std::get<std::string>(prompts("[\"\"]")[0]), "");
  for (const char* wrong : {"1", "{}", "true", "[1, \"a\"]", "[1, -1]", "[1, 2147483648]", "[[1.5]]", "[{}]", "null"}) {
    EXPECT_EQ(completion_outcome(std::string("{\"prompt\": ") + wrong + "}"), "400 prompt") << wrong;
  }
}

TEST(WireRequest, ToolsReachTheTemplate) {
  const std::string tool = R"({"type": "function", "function": {"name": "f"}})";
  EXPECT_EQ(Json::parse(parse_chat(with("\"tools\": [" + tool + "]")).tools)[0]["function"]["name"], "f");
  EXPECT_EQ(parse_chat(with("\"tools\": [" + tool + "], \"tool_choice\": \"none\"")).tools, "");
  EXPECT_EQ(chat_outcome(with(R"("tools": [{"type": "function"}])")), "400 tools");
  EXPECT_EQ(chat_outcome(with(R"("tools": {})")), "400 tools");
  EXPECT_EQ(chat_outcome(with("\"tools\": [" + tool + "], \"tool_choice\": \"required\"")), "400 tool_choice");
  EXPECT_EQ(Json::parse(parse_chat(with(R"("reasoning_effort": "low")")).variables)["reasoning_strength"], "low");
}

TEST(WireRequest, TokenizeAndDetokenize) {
  EXPECT_TRUE(parse_tokenize(R"({"content": "a", "add_special": true})").add_special);
  EXPECT_EQ(outcome([] { parse_tokenize("{}"); }), "400 content");
  EXPECT_EQ(outcome([] { parse_detokenize(R"({"tokens": [-1]})"); }), "400 tokens");
  EXPECT_EQ(parse_detokenize(R"({"tokens": [1, 2]})").size(), 2U);
}

std::vector<ReplyPiece> sample_pieces() {
  std::vector<ReplyPiece> pieces(4);
  pieces[0].reasoning = "hm";
  pieces[1].content = "Hi \xf0\x9f\x98\x80";
  // An emoji in two tokens of two bytes; a probability that JSON cannot hold.
  pieces[1].tokens = {{"\xf0\x9f", -0.5F, {{"\xf0\x9f", -0.5F}, {"a", -2.0F}}},
                      {"\x98\x80", -std::numeric_limits<float>::infinity(), {}}};
  pieces[2].tool_calls = {{0, "call_1", "f", "{\"x\": 1}"}};
  pieces[3].finish = "tool_calls";
  return pieces;
}

TEST(WireReply, WholeRepliesAreTheirStreamedPieces) {
  ReplyHead head{
      .chat = true, .id = "chatcmpl-1", .model = "m", .created = 7, .logprobs = true, .usage_in_stream = true};
  ChunkPrinter printer(head);
  WholeReply whole(head, 1);
  std::string content;
  std::string reasoning;
  std::string bytes;
  for (const ReplyPiece& piece : sample_pieces()) {
    whole.add(piece);
    const Json chunk = Json::parse(printer.piece(piece));
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_TRUE(chunk["usage"].is_null());
    const Json& delta = chunk["choices"][0]["delta"];
    content += delta.value("content", "");
    reasoning += delta.value("reasoning_content", "");
  }
  const Json body =
      Json::parse(whole.print({.prompt_tokens = 3, .completion_tokens = 2, .cached_tokens = 1, .reasoning_tokens = 1}));
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["message"]["content"], content);
  EXPECT_EQ(choice["message"]["reasoning_content"], reasoning);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"x\": 1}");
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  ASSERT_EQ(choice["logprobs"]["content"].size(), 2U);
  for (const Json& token : choice["logprobs"]["content"]) {
    EXPECT_TRUE(token["logprob"].is_number());
    for (const Json& byte : token["bytes"]) bytes += static_cast<char>(byte.get<int>());
  }
  EXPECT_EQ(bytes, "\xf0\x9f\x98\x80");
  EXPECT_EQ(body["usage"]["total_tokens"], 5);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
  const Json usage = Json::parse(printer.usage({.prompt_tokens = 3, .completion_tokens = 2}));
  EXPECT_TRUE(usage["choices"].is_array() && usage["choices"].empty());
}

TEST(WireReply, CompletionLogprobs) {
  ReplyHead head{.chat = false, .id = "cmpl-1", .model = "m", .created = 7, .logprobs = true};
  ChunkPrinter printer(head);
  ReplyPiece piece;
  piece.content = "ab";
  piece.tokens = {{"a", -1.0F, {{"a", -1.0F}, {"b", -2.0F}}}, {"b", -1.0F, {}}};
  const Json first = Json::parse(printer.piece(piece))["choices"][0];
  EXPECT_EQ(first["text"], "ab");
  EXPECT_EQ(first["logprobs"]["tokens"], Json({"a", "b"}));
  EXPECT_EQ(first["logprobs"]["top_logprobs"][0]["b"], -2.0);
  EXPECT_TRUE(first["logprobs"]["top_logprobs"][1].is_null());
  EXPECT_EQ(Json::parse(printer.piece(piece))["choices"][0]["logprobs"]["text_offset"], Json({2, 3}));
  // Characters, not bytes; the second half of an emoji stands where the emoji does.
  piece.tokens = {{"\xc3\xa9", -1.0F, {}}, {"\xf0\x9f", -1.0F, {}}, {"\x98\x80", -1.0F, {}}, {"x", -1.0F, {}}};
  EXPECT_EQ(Json::parse(printer.piece(piece))["choices"][0]["logprobs"]["text_offset"], Json({4, 5, 5, 6}));
}

}  // namespace
}  // namespace slipring::server
