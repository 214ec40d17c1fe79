#include "server/wire_request.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "formats/json_check.h"
#include "server/api_error.h"

namespace slipring::server {
namespace {

using Json = nlohmann::ordered_json;

std::string in_quotes(std::string_view text) {
  return "'" + std::string(text) + "'";
}

constexpr size_t kMaxKeys = 10'000;
constexpr JsonBounds kBodyBounds{.max_depth = kMaxBodyDepth, .max_keys = kMaxKeys};

Json parse_object(std::string_view body) {
  const JsonShape shape = check_json(body, kBodyBounds);
  if (shape.too_deep) {
    throw ApiError::bad_request("", "The body nests deeper than " + std::to_string(kMaxBodyDepth) + " levels");
  }
  if (shape.too_many_keys) {
    throw ApiError::bad_request("", "The body has an object of more than " + std::to_string(kMaxKeys) + " keys");
  }
  Json json;
  try {
    json = Json::parse(body);
  } catch (const Json::parse_error& error) {
    throw ApiError::bad_request(
        "", error.byte > body.size()
                ? "The body is not valid JSON: it ends too early, after " + std::to_string(body.size()) + " bytes"
                : "The body is not valid JSON at byte " + std::to_string(error.byte));
  } catch (const Json::exception&) {
    throw ApiError::bad_request("", "The body holds a number that is too large");
  }
  if (!json.is_object())
    throw ApiError::bad_request("", std::string("The body must be an object, not ") + json.type_name());
  return json;
}

// The field, or nothing where it is absent or null.
const Json* field(const Json& json, const char* name) {
  const auto place = json.find(name);
  return place == json.end() || place->is_null() ? nullptr : &*place;
}

[[noreturn]] void wrong_type(const std::string& name, const std::string& expected, const Json& got) {
  throw ApiError::bad_request(name, in_quotes(name) + " must be " + expected + ", not " +
                                        (got.is_number() ? got.dump() : std::string(got.type_name())));
}

// Whole numbers, also spelled 5.0; what is too large for int64_t becomes its greatest value.
int64_t whole(const std::string& name, const Json& value, int64_t low, int64_t high) {
  int64_t number = 0;
  if (value.is_number_unsigned()) {
    const auto unsigned_number = value.get<uint64_t>();
    number = unsigned_number > static_cast<uint64_t>(INT64_MAX) ? INT64_MAX : static_cast<int64_t>(unsigned_number);
  } else if (value.is_number_integer()) {
    number = value.get<int64_t>();
  } else if (value.is_number_float() && std::nearbyint(value.get<double>()) == value.get<double>()) {
    const double real = value.get<double>();
    number = real >= 9.2e18 ? INT64_MAX : real <= -9.2e18 ? INT64_MIN : static_cast<int64_t>(real);
  } else {
    wrong_type(name, "a whole number", value);
  }
  if (number < low || number > high) {
    throw ApiError::bad_request(name, in_quotes(name) + " must be " + std::to_string(low) +
                                          (high == INT64_MAX ? " or more" : " to " + std::to_string(high)) + ", got " +
                                          value.dump());
  }
  return number;
}

std::optional<int64_t> whole_field(const Json& json, const char* name, int64_t low, int64_t high) {
  const Json* value = field(json, name);
  return value != nullptr ? std::optional<int64_t>(whole(name, *value, low, high)) : std::nullopt;
}

void real_field(const Json& json, const char* name, double low, double high, double& into) {
  const Json* value = field(json, name);
  if (value == nullptr) return;
  if (!value->is_number()) wrong_type(name, "a number", *value);
  const auto number = value->get<double>();
  if (!(number >= low && number <= high)) {
    throw ApiError::bad_request(
        name, in_quotes(name) + " must be " + Json(low).dump() + " to " + Json(high).dump() + ", got " + value->dump());
  }
  into = number;
}

bool flag_field(const Json& json, const char* name, bool fallback) {
  const Json* value = field(json, name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) wrong_type(name, "true or false", *value);
  return value->get<bool>();
}

std::string text_field(const Json& json, const char* name) {
  const Json* value = field(json, name);
  if (value == nullptr) return "";
  if (!value->is_string()) wrong_type(name, "a string", *value);
  return value->get<std::string>();
}

std::vector<std::string> stops(const Json& json) {
  std::vector<std::string> result;
  const Json* value = field(json, "stop");
  if (value == nullptr) return result;
  const auto add = [&result](const Json& item) {
    if (!item.is_string()) wrong_type("stop", "a string or an array of strings", item);
    const auto& text = item.get_ref<const std::string&>();
    if (text.empty()) throw ApiError::bad_request("stop", "'stop' holds an empty string, which would stop at once");
    if (text.size() > kMaxStopBytes) {
      throw ApiError::bad_request("stop", "'stop' holds a string of " + std::to_string(text.size()) +
                                              " bytes; at most " + std::to_string(kMaxStopBytes) + " are allowed");
    }
    result.push_back(text);
  };
  if (value->is_string()) {
    add(*value);
    return result;
  }
  if (!value->is_array()) wrong_type("stop", "a string or an array of strings", *value);
  if (value->size() > kMaxStops) {
    throw ApiError::bad_request("stop", "'stop' holds " + std::to_string(value->size()) + " strings; at most " +
                                            std::to_string(kMaxStops) + " are allowed");
  }
  for (const Json& item : *value) add(item);
  return result;
}

void logit_bias(const Json& json, SamplingOptions& sampling) {
  const Json* value = field(json, "logit_bias");
  if (value == nullptr) return;
  if (!value->is_object()) wrong_type("logit_bias", "an object of token ids and numbers", *value);
  if (value->size() > kMaxLogitBias) {
    throw ApiError::bad_request("logit_bias", "'logit_bias' names " + std::to_string(value->size()) +
                                                  " tokens; at most " + std::to_string(kMaxLogitBias) + " are allowed");
  }
  for (const auto& [key, bias] : value->items()) {
    TokenId id = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || id < 0) {
      throw ApiError::bad_request("logit_bias",
                                  "'logit_bias' has the key " + in_quotes(key) + ", which is no token id");
    }
    if (!bias.is_number()) wrong_type("logit_bias", "an object of token ids and numbers", bias);
    const auto number = bias.get<double>();
    if (!(number >= -100 && number <= 100)) {
      throw ApiError::bad_request("logit_bias", "'logit_bias' values must be -100 to 100, got " + bias.dump());
    }
    // OpenAI's -100 is a ban.
    sampling.logit_bias.emplace_back(
        id, number <= -100 ? -std::numeric_limits<float>::infinity() : static_cast<float>(number));
  }
}

// Fields whose wishes cannot be met are refused instead of passed over.
void refuse_unsupported(const Json& json) {
  if (const Json* format = field(json, "response_format")) {
    const std::string type = format->is_object() ? text_field(*format, "type") : "";
    if (type != "text") {
      throw ApiError::bad_request("response_format", "'response_format' can only be {\"type\": \"text\"}",
                                  "unsupported");
    }
  }
  if (flag_field(json, "echo", false)) throw ApiError::bad_request("echo", "'echo' is not supported", "unsupported");
  if (!text_field(json, "suffix").empty())
    throw ApiError::bad_request("suffix", "'suffix' is not supported", "unsupported");
  const auto best_of = whole_field(json, "best_of", 1, kMaxChoices);
  if (best_of && *best_of != whole_field(json, "n", 1, kMaxChoices).value_or(1)) {
    throw ApiError::bad_request("best_of", "'best_of' other than 'n' is not supported", "unsupported");
  }
}

void generation_fields(const Json& json, GenerationFields& fields) {
  refuse_unsupported(json);
  fields.model = text_field(json, "model");
  // Each is checked, also where the newer name wins.
  const auto older = whole_field(json, "max_tokens", 0, INT64_MAX);
  const auto newer = whole_field(json, "max_completion_tokens", 0, INT64_MAX);
  fields.max_tokens = newer ? newer : older;
  fields.n = whole_field(json, "n", 1, kMaxChoices).value_or(1);
  fields.stop = stops(json);
  fields.stream = flag_field(json, "stream", false);
  if (const Json* options = field(json, "stream_options")) {
    if (!options->is_object()) wrong_type("stream_options", "an object", *options);
    if (!fields.stream) throw ApiError::bad_request("stream_options", "'stream_options' is only for 'stream': true");
    fields.include_usage = flag_field(*options, "include_usage", false);
  }
  SamplingOptions& sampling = fields.sampling;
  sampling.temperature = 1.0;
  sampling.top_p = 1.0;
  sampling.top_k = 0;
  real_field(json, "temperature", 0, 2, sampling.temperature);
  real_field(json, "top_p", 0, 1, sampling.top_p);
  real_field(json, "min_p", 0, 1, sampling.min_p);
  real_field(json, "presence_penalty", -2, 2, sampling.presence_penalty);
  real_field(json, "frequency_penalty", -2, 2, sampling.frequency_penalty);
  real_field(json, "repeat_penalty", 0.01, 100, sampling.repeat_penalty);
  real_field(json, "repetition_penalty", 0.01, 100, sampling.repeat_penalty);
  sampling.top_k = whole_field(json, "top_k", -1, INT64_MAX).value_or(0);
  logit_bias(json, sampling);
  if (const auto seed = whole_field(json, "seed", INT64_MIN, INT64_MAX)) fields.seed = static_cast<uint64_t>(*seed);
}

std::vector<TokenId> token_ids(const std::string& name, const Json& array) {
  std::vector<TokenId> ids;
  ids.reserve(array.size());
  for (const Json& id : array) ids.push_back(static_cast<TokenId>(whole(name, id, 0, INT32_MAX)));
  return ids;
}

// A content that is text, or parts of text, as one string.
Json joined_content(const Json& content, const std::string& where) {
  if (content.is_null() || content.is_string()) return content;
  if (!content.is_array()) wrong_type(where, "a string, null or an array of parts", content);
  std::string text;
  for (const Json& part : content) {
    const std::string type = part.is_object() ? text_field(part, "type") : "";
    if (type != "text" && type != "refusal") {
      throw ApiError::bad_request(where, in_quotes(where) + " has a part that is no text; this server reads text only",
                                  "unsupported");
    }
    text += text_field(part, type.c_str());
  }
  return text;
}

Json checked_message(const Json& message, size_t index) {
  const std::string where = "messages[" + std::to_string(index) + "]";
  if (!message.is_object()) wrong_type(where, "an object", message);
  Json copy = Json::object();
  // Null is absent, here as everywhere; a template that asks for a field then finds it undefined.
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) copy[key] = value;
  }
  if (text_field(copy, "role").empty())
    throw ApiError::bad_request(where + ".role", in_quotes(where + ".role") + " is missing");
  const bool has_calls = copy.contains("tool_calls");
  if (!copy.contains("content") && !has_calls && text_field(copy, "role") != "assistant") {
    throw ApiError::bad_request(where + ".content", in_quotes(where + ".content") + " is missing");
  }
  copy["content"] = copy.contains("content") ? joined_content(copy["content"], where + ".content") : Json("");
  if (!has_calls) return copy;
  if (!copy["tool_calls"].is_array()) wrong_type(where + ".tool_calls", "an array", copy["tool_calls"]);
  for (Json& call : copy["tool_calls"]) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) {
      wrong_type(where + ".tool_calls", "an array of function calls", call);
    }
    // OpenAI sends arguments as JSON in a string; templates are written for the object.
    Json& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    const auto& text = function["arguments"].get_ref<const std::string&>();
    if (!check_json(text, kBodyBounds).fits()) continue;
    Json parsed = Json::parse(text, nullptr, false);
    if (parsed.is_object()) function["arguments"] = std::move(parsed);
  }
  return copy;
}

void template_variables(const Json& json, ChatRequest& request) {
  Json variables = Json::object();
  if (const Json* further = field(json, "chat_template_kwargs")) {
    if (!further->is_object()) wrong_type("chat_template_kwargs", "an object", *further);
    variables = *further;
  }
  const std::string effort = text_field(json, "reasoning_effort");
  if (!effort.empty()) {
    // gpt-oss reads the first name, Muse Glimmer the second.
    variables["reasoning_effort"] = effort;
    variables["reasoning_strength"] = effort;
  }
  if (!variables.empty()) request.variables = variables.dump();
}

void chat_tools(const Json& json, ChatRequest& request) {
  const Json* choice = field(json, "tool_choice");
  const bool none = choice != nullptr && choice->is_string() && *choice == "none";
  if (choice != nullptr && !none && !(choice->is_string() && *choice == "auto")) {
    throw ApiError::bad_request("tool_choice", "'tool_choice' can be \"auto\" or \"none\"", "unsupported");
  }
  const Json* tools = field(json, "tools");
  if (tools == nullptr || none) return;
  if (!tools->is_array()) wrong_type("tools", "an array", *tools);
  for (const Json& tool : *tools) {
    if (!tool.is_object() || text_field(tool, "type") != "function" || !tool.contains("function") ||
        !tool["function"].is_object() || text_field(tool["function"], "name").empty()) {
      throw ApiError::bad_request("tools", "'tools' must hold {\"type\": \"function\", \"function\": {\"name\": ...}}");
    }
  }
  if (!tools->empty()) request.tools = tools->dump();
}

}  // namespace

CompletionRequest parse_completion(std::string_view body) {
  const Json json = parse_object(body);
  CompletionRequest request;
  generation_fields(json, request);
  request.logprobs = whole_field(json, "logprobs", 0, kMaxTopLogprobs);
  const Json* prompt = field(json, "prompt");
  if (prompt == nullptr) throw ApiError::bad_request("prompt", "'prompt' is missing");
  if (prompt->is_string()) {
    request.prompts.emplace_back(prompt->get<std::string>());
  } else if (!prompt->is_array()) {
    wrong_type("prompt", "a string, an array of strings, or token ids", *prompt);
  } else if (prompt->empty() || prompt->front().is_number()) {
    // An empty array is an empty prompt, as an empty string is.
    request.prompts.emplace_back(token_ids("prompt", *prompt));
  } else {
    for (const Json& item : *prompt) {
      if (item.is_string()) {
        request.prompts.emplace_back(item.get<std::string>());
      } else if (item.is_array()) {
        request.prompts.emplace_back(token_ids("prompt", item));
      } else {
        wrong_type("prompt", "a string, an array of strings, or token ids", item);
      }
    }
  }
  if (static_cast<int64_t>(request.prompts.size()) * request.n > kMaxChoices) {
    throw ApiError::bad_request("prompt", "'prompt' and 'n' ask for " +
                                              std::to_string(static_cast<int64_t>(request.prompts.size()) * request.n) +
                                              " completions; at most " + std::to_string(kMaxChoices) + " are allowed");
  }
  return request;
}

ChatRequest parse_chat(std::string_view body) {
  const Json json = parse_object(body);
  ChatRequest request;
  generation_fields(json, request);
  const auto alternatives = whole_field(json, "top_logprobs", 0, kMaxTopLogprobs);
  if (flag_field(json, "logprobs", false)) {
    request.logprobs = alternatives.value_or(0);
  } else if (alternatives.value_or(0) > 0) {
    throw ApiError::bad_request("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  }
  const Json* messages = field(json, "messages");
  if (messages == nullptr) throw ApiError::bad_request("messages", "'messages' is missing");
  if (!messages->is_array()) wrong_type("messages", "an array", *messages);
  if (messages->empty()) throw ApiError::bad_request("messages", "'messages' is empty");
  Json checked = Json::array();
  for (size_t i = 0; i < messages->size(); ++i) checked.push_back(checked_message((*messages)[i], i));
  request.messages = checked.dump();
  chat_tools(json, request);
  template_variables(json, request);
  return request;
}

TokenizeRequest parse_tokenize(std::string_view body) {
  const Json json = parse_object(body);
  TokenizeRequest request;
  const char* name = json.contains("content") ? "content" : "prompt";
  if (field(json, name) == nullptr) throw ApiError::bad_request("content", "'content' is missing");
  request.content = text_field(json, name);
  request.add_special = flag_field(json, "add_special", false);
  request.parse_special = flag_field(json, "parse_special", false);
  return request;
}

std::vector<TokenId> parse_detokenize(std::string_view body) {
  const Json json = parse_object(body);
  const Json* tokens = field(json, "tokens");
  if (tokens == nullptr) throw ApiError::bad_request("tokens", "'tokens' is missing");
  if (!tokens->is_array()) wrong_type("tokens", "an array of token ids", *tokens);
  return token_ids("tokens", *tokens);
}

ApiError ApiError::from(const Error& error) {
  switch (error.code()) {
    case ErrorCode::context_full:
      return bad_request("messages", error.what(), "context_length_exceeded");
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
      return bad_request("", error.what());
    default:
      return {500, "server_error", error.what(), "", std::string(to_string(error.code()))};
  }
}

std::string ApiError::body() const {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  const Json json = {
      {"error", {{"message", what()}, {"type", type_}, {"param", or_null(param_)}, {"code", or_null(code_)}}}};
  // What clients sent is in the message, and it may be anything.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace slipring::server
