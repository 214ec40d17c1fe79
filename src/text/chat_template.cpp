#include <algorithm>
#include <array>

#include <slipring/chat_template.h>
#include <slipring/error.h>

#include "text/control_guard.h"
#include "text/jinja/parser.h"
#include "text/jinja/renderer.h"

namespace slipring {
namespace {

using jinja::Dict;
using jinja::Value;

// Older and newer names of the same field; templates read one of them.
constexpr std::array<const char*, 3> kReasoningFields = {"reasoning_content", "thinking", "reasoning"};

Value with_reasoning_names(const Value& message) {
  if (!message.is_dict()) return message;
  const Value* reasoning = nullptr;
  for (const char* field : kReasoningFields) {
    const Value* value = message.entries().find(field);
    if (reasoning == nullptr && value != nullptr && !value->is_none()) reasoning = value;
  }
  if (reasoning == nullptr) return message;
  Dict copy = message.entries();
  const Value text = *reasoning;
  copy.set("reasoning_content", text);
  if (copy.find("thinking") == nullptr) copy.set("thinking", text);
  return Value::dict(std::move(copy));
}

Value guarded(const Value& value, const ControlGuard* guard) {
  if (guard == nullptr) return value;
  if (value.is_string()) return guard->needs(value.text()) ? Value::string(guard->protect(value.text())) : value;
  if (value.is_list()) {
    std::vector<Value> items;
    items.reserve(value.items().items.size());
    for (const Value& item : value.items().items) items.push_back(guarded(item, guard));
    return Value::list(std::move(items));
  }
  if (value.is_dict()) {
    Dict dict;
    for (const auto& [key, entry] : value.entries().entries) {
      dict.set(guard->needs(key) ? guard->protect(key) : key, guarded(entry, guard));
    }
    return Value::dict(std::move(dict));
  }
  return value;
}

Dict variables_of(const ChatInput& input, const ControlGuard* guard) {
  Dict variables;
  const Value messages = jinja::from_json(input.messages);
  if (!messages.is_list()) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "messages", .expected = "a list", .got = std::string(messages.type_name())});
  }
  std::vector<Value> named;
  named.reserve(messages.items().items.size());
  for (const Value& message : messages.items().items) named.push_back(guarded(with_reasoning_names(message), guard));
  variables.set("messages", Value::list(std::move(named)));
  variables.set("tools", input.tools.empty() ? Value::none() : guarded(jinja::from_json(input.tools), guard));
  variables.set("documents", Value::none());
  variables.set("add_generation_prompt", Value::boolean(input.add_generation_prompt));
  if (!input.variables.empty()) {
    const Value further = jinja::from_json(input.variables);
    if (!further.is_dict()) {
      throw Error(ErrorCode::invalid_argument,
                  {.where = "template variables", .expected = "an object", .got = std::string(further.type_name())});
    }
    for (const auto& [name, value] : further.entries().entries) variables.set(name, guarded(value, guard));
  }
  return variables;
}

std::string run(const jinja::Block& block, const ChatInput& input, Dict variables, std::string_view bos,
                std::string_view eos) {
  variables.set("bos_token", Value::string(std::string(bos)));
  variables.set("eos_token", Value::string(std::string(eos)));
  jinja::Renderer renderer(jinja::RenderLimits(), input.now.value_or(std::time(nullptr)), input.stop);
  return renderer.render(block, variables);
}

}  // namespace

struct ChatTemplate::Tree {
  jinja::Block block;
};

ChatTemplate::ChatTemplate(std::string_view source) : tree_(new Tree{jinja::parse(source)}) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(const ChatInput& input, std::string_view bos_token, std::string_view eos_token) const {
  return run(tree_->block, input, variables_of(input, nullptr), bos_token, eos_token);
}

std::vector<TokenId> ChatTemplate::encode(const ChatInput& input, const Tokenizer& tokenizer) const {
  const ControlGuard guard(tokenizer, {input.messages, input.tools, input.variables});
  const std::string bos = tokenizer.bos() ? tokenizer.token_text(*tokenizer.bos()) : "";
  const auto& ends = tokenizer.end_of_turn();
  const std::string eos = ends.empty() ? "" : tokenizer.token_text(ends.front());
  std::vector<TokenId> ids = guard.encode(run(tree_->block, input, variables_of(input, &guard), bos, eos));
  const auto first = tokenizer.bos();
  if (tokenizer.add_bos() && first && (ids.empty() || ids.front() != *first)) ids.insert(ids.begin(), *first);
  return ids;
}

}  // namespace slipring
