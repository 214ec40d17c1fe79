#include "server/wire_reply.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include <slipring/tokenizer.h>

namespace slipring::server {
namespace {

using Json = nlohmann::ordered_json;

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// JSON has no infinities; nothing that was drawn is less likely than this.
Json finite(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

Json byte_list(const std::string& bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

Json chat_logprobs(const std::vector<TokenReport>& tokens) {
  Json content = Json::array();
  for (const TokenReport& token : tokens) {
    Json alternatives = Json::array();
    for (const auto& other : token.alternatives) {
      alternatives.push_back(
          {{"token", valid_utf8(other.bytes)}, {"logprob", finite(other.logprob)}, {"bytes", byte_list(other.bytes)}});
    }
    content.push_back({{"token", valid_utf8(token.bytes)},
                       {"logprob", finite(token.logprob)},
                       {"bytes", byte_list(token.bytes)},
                       {"top_logprobs", std::move(alternatives)}});
  }
  return {{"content", std::move(content)}};
}

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U;
}

// Offsets count characters, as OpenAI's do. A token that begins inside of a character has that character's.
Json completion_logprobs(const std::vector<TokenReport>& tokens, int64_t& text_offset) {
  Json names = Json::array();
  Json values = Json::array();
  Json alternatives = Json::array();
  Json offsets = Json::array();
  for (const TokenReport& token : tokens) {
    names.push_back(valid_utf8(token.bytes));
    values.push_back(finite(token.logprob));
    Json others = Json::object();
    for (const auto& other : token.alternatives) {
      // Half characters read alike: the likeliest keeps the name.
      const std::string name = valid_utf8(other.bytes);
      if (!others.contains(name)) others[name] = finite(other.logprob);
    }
    alternatives.push_back(token.alternatives.empty() ? Json(nullptr) : std::move(others));
    const bool inside = !token.bytes.empty() && continues_character(token.bytes.front());
    offsets.push_back(std::max<int64_t>(0, text_offset - (inside ? 1 : 0)));
    text_offset +=
        std::count_if(token.bytes.begin(), token.bytes.end(), [](char c) { return !continues_character(c); });
  }
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(alternatives)},
          {"text_offset", std::move(offsets)}};
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

Json head_json(const ReplyHead& head, bool chunk) {
  const char* object = head.chat ? (chunk ? "chat.completion.chunk" : "chat.completion") : "text_completion";
  return {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
}

Json finish_json(const std::string& finish) {
  return finish.empty() ? Json(nullptr) : Json(finish);
}

}  // namespace

std::string ChunkPrinter::opening(int64_t choice) const {
  Json json = head_json(head_, true);
  json["choices"] = Json::array({{{"index", choice},
                                  {"delta", {{"role", "assistant"}, {"content", ""}}},
                                  {"logprobs", nullptr},
                                  {"finish_reason", nullptr}}});
  if (head_.usage_in_stream) json["usage"] = nullptr;
  return dumped(json);
}

std::string ChunkPrinter::piece(const ReplyPiece& piece) {
  Json choice = {{"index", piece.choice}};
  if (head_.chat) {
    Json delta = Json::object();
    if (!piece.content.empty()) delta["content"] = piece.content;
    if (!piece.reasoning.empty()) delta["reasoning_content"] = piece.reasoning;
    for (const ToolCallPiece& call : piece.tool_calls) {
      Json entry = {{"index", call.index}};
      if (!call.id.empty()) {
        entry["id"] = call.id;
        entry["type"] = "function";
      }
      entry["function"] = Json::object();
      if (!call.name.empty()) entry["function"]["name"] = call.name;
      entry["function"]["arguments"] = call.arguments;
      delta["tool_calls"].push_back(std::move(entry));
    }
    choice["delta"] = std::move(delta);
    choice["logprobs"] = head_.logprobs && !piece.tokens.empty() ? chat_logprobs(piece.tokens) : Json(nullptr);
  } else {
    const auto index = static_cast<size_t>(piece.choice);
    if (text_offsets_.size() <= index) text_offsets_.resize(index + 1);
    choice["text"] = piece.content;
    choice["logprobs"] = head_.logprobs && !piece.tokens.empty()
                             ? completion_logprobs(piece.tokens, text_offsets_[index])
                             : Json(nullptr);
  }
  choice["finish_reason"] = finish_json(piece.finish);
  Json json = head_json(head_, true);
  json["choices"] = Json::array({std::move(choice)});
  if (head_.usage_in_stream) json["usage"] = nullptr;
  return dumped(json);
}

std::string ChunkPrinter::usage(const Usage& usage) const {
  Json json = head_json(head_, true);
  json["choices"] = Json::array();
  json["usage"] = usage_json(usage);
  return dumped(json);
}

WholeReply::WholeReply(ReplyHead head, int64_t choices)
    : head_(std::move(head)), choices_(static_cast<size_t>(choices)) {}

void WholeReply::add(const ReplyPiece& piece) {
  ReplyPiece& all = choices_.at(static_cast<size_t>(piece.choice)).all;
  all.content += piece.content;
  all.reasoning += piece.reasoning;
  all.tokens.insert(all.tokens.end(), piece.tokens.begin(), piece.tokens.end());
  if (!piece.finish.empty()) all.finish = piece.finish;
  for (const ToolCallPiece& call : piece.tool_calls) {
    if (all.tool_calls.empty() || all.tool_calls.back().index != call.index) {
      all.tool_calls.push_back(call);
    } else {
      all.tool_calls.back().arguments += call.arguments;
    }
  }
}

std::string WholeReply::print(const Usage& usage) const {
  Json json = head_json(head_, false);
  Json choices = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const ReplyPiece& all = choices_[i].all;
    Json choice = {{"index", i}};
    if (head_.chat) {
      Json message = {{"role", "assistant"}};
      message["content"] = all.content.empty() && !all.tool_calls.empty() ? Json(nullptr) : Json(all.content);
      if (!all.reasoning.empty()) message["reasoning_content"] = all.reasoning;
      for (const ToolCallPiece& call : all.tool_calls) {
        message["tool_calls"].push_back({{"id", call.id},
                                         {"type", "function"},
                                         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
      }
      choice["message"] = std::move(message);
      choice["logprobs"] = head_.logprobs ? chat_logprobs(all.tokens) : Json(nullptr);
    } else {
      int64_t offset = 0;
      choice["text"] = all.content;
      choice["logprobs"] = head_.logprobs ? completion_logprobs(all.tokens, offset) : Json(nullptr);
    }
    choice["finish_reason"] = finish_json(all.finish);
    choices.push_back(std::move(choice));
  }
  json["choices"] = std::move(choices);
  json["usage"] = usage_json(usage);
  return dumped(json);
}

}  // namespace slipring::server
