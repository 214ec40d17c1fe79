#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include <slipring/reply_parser.h>

#include "formats/json_check.h"

namespace slipring {
namespace {

using Json = nlohmann::ordered_json;

// A JSON string. A model can write any bytes, also where a name belongs.
std::string json_string(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A header is short; text that is longer was never one.
constexpr size_t kMaxHeader = 256;

constexpr std::string_view kCallsOpen = "<atem:function_calls>";
constexpr std::string_view kCallsClose = "</atem:function_calls>";
constexpr std::string_view kInvokeOpen = "<atem:invoke";
constexpr std::string_view kInvokeClose = "</atem:invoke>";
constexpr std::string_view kParameterOpen = "<atem:parameter";
constexpr std::string_view kParameterClose = "</atem:parameter>";

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}
bool could_become(std::string_view text, std::string_view whole) {
  return text.size() < whole.size() && whole.substr(0, text.size()) == text;
}

// Where a tail of `text` begins that could become one of `tags`; its size if none does.
template <size_t N>
size_t partial_tail(std::string_view text, const std::array<std::string_view, N>& tags) {
  for (size_t at = text.rfind('<'); at != std::string_view::npos; at = at > 0 ? text.rfind('<', at - 1) : at - 1) {
    const std::string_view tail = text.substr(at);
    if (std::any_of(tags.begin(), tags.end(), [tail](std::string_view tag) { return could_become(tail, tag); }))
      return at;
    if (tail.size() > kCallsClose.size()) break;
  }
  return text.size();
}

// The value of name="..." inside a tag.
std::string name_attribute(std::string_view tag) {
  const size_t begin = tag.find("name=\"");
  if (begin == std::string_view::npos) return "";
  const size_t end = tag.find('"', begin + 6);
  return end == std::string_view::npos ? "" : std::string(tag.substr(begin + 6, end - begin - 6));
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

// The word behind `key` in a header: "to=self" and "channel=final".
std::string header_word(const std::string& header, std::string_view key) {
  const size_t at = header.find(key);
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size();
  size_t end = begin;
  while (end < header.size() && !is_blank(header[end])) ++end;
  return header.substr(begin, end - begin);
}

// Whether text in front of the first <|message|> can still be a header: "assistant", " to=NAME", both, or a beginning.
bool may_be_header(const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty() && is_blank(rest.front()) && rest.front() != '\n') rest.remove_prefix(1);
  if (rest.empty() || could_become(rest, "assistant") || could_become(rest, "to=")) return true;
  if (starts_with(rest, "assistant")) {
    rest.remove_prefix(9);
    while (!rest.empty() && is_blank(rest.front())) rest.remove_prefix(1);
    if (rest.empty() || could_become(rest, "to=")) return true;
  }
  return starts_with(rest, "to=") && rest.find('\n') == std::string_view::npos && text.size() <= kMaxHeader;
}

}  // namespace

ToolParameterTypes tool_parameter_types(std::string_view tools_json) {
  ToolParameterTypes types;
  const Json tools = Json::parse(tools_json, nullptr, false);
  if (!tools.is_array()) return types;
  const auto member = [](const Json& json, const char* name) {
    return json.is_object() && json.contains(name) ? json[name] : Json();
  };
  for (const Json& tool : tools) {
    const Json function = member(tool, "function");
    const Json name = member(function, "name");
    const Json properties = member(member(function, "parameters"), "properties");
    if (!name.is_string()) continue;
    auto& parameters = types[name.get<std::string>()];
    if (!properties.is_object()) continue;
    for (const auto& [key, schema] : properties.items()) {
      const Json type = member(schema, "type");
      if (type.is_string()) parameters[key] = type.get<std::string>();
    }
  }
  return types;
}

ReplyParser::ReplyParser(ReplyDialect dialect, ToolParameterTypes types, bool in_header)
    : dialect_(dialect),
      types_(std::move(types)),
      state_(in_header && dialect != ReplyDialect::plain ? State::header : State::body) {}

std::vector<ReplyEvent> ReplyParser::text(std::string_view piece) {
  std::vector<ReplyEvent> events;
  if (state_ == State::header) {
    header_ += piece;
    // Behind a channel's token anything is part of the header; the same word as text is none.
    if (!first_header_ || (channel_ ? header_.size() <= kMaxHeader : may_be_header(header_))) return events;
    // A model that does not frame its replies: all of it is for the user.
    held_ = std::move(header_);
    header_.clear();
    channel_ = false;
    recipient_ = Recipient::user;
    state_ = State::body;
    read_body(events, false);
  } else if (state_ == State::body) {
    held_ += piece;
    read_body(events, false);
  }
  return events;
}

std::vector<ReplyEvent> ReplyParser::control(std::string_view spelling) {
  std::vector<ReplyEvent> events;
  if (dialect_ == ReplyDialect::plain || state_ == State::ended) return events;
  if (spelling == "<|start|>") {
    close_body(events);
    state_ = State::header;
    first_header_ = false;
  } else if (spelling == "<|channel|>" && state_ == State::header) {
    header_ += " channel=";
    channel_ = true;
  } else if (spelling == "<|message|>" && state_ == State::header) {
    open_body();
  } else if (spelling == "<|message|>" && state_ == State::body && tags_ == Tags::outside) {
    // Muse Glimmer at times opens the next message without closing this one: its header is this body's tail.
    const size_t to = held_.rfind("to=");
    if (to != std::string::npos && (to == 0 ? at_word_ : is_blank(held_[to - 1])) &&
        std::none_of(held_.begin() + static_cast<std::ptrdiff_t>(to), held_.end(), is_blank)) {
      std::string header = held_.substr(to);
      held_.resize(to > 0 ? to - 1 : 0);
      close_body(events);
      header_ = std::move(header);
      open_body();
    }
  } else if (spelling == "<|eom|>" || spelling == "<|end|>" || spelling == "<|eot|>" || spelling == "<|call|>" ||
             spelling == "<|return|>") {
    close_body(events);
  }
  return events;
}

std::vector<ReplyEvent> ReplyParser::finish() {
  std::vector<ReplyEvent> events;
  // A harmony call is whole only if its message was closed.
  if (state_ == State::body && !(dialect_ == ReplyDialect::harmony && recipient_ == Recipient::tool))
    read_body(events, true);
  held_.clear();
  header_.clear();
  return events;
}

void ReplyParser::open_body() {
  const std::string role = trimmed(header_.substr(0, header_.find_first_of(" =")));
  const bool ours = first_header_ || role.empty() || role == "assistant" || starts_with(header_, "to=");
  const std::string to = header_word(header_, "to=");
  const std::string channel = header_word(header_, "channel=");
  header_.clear();
  channel_ = false;
  first_header_ = false;
  held_.clear();
  at_word_ = true;
  tags_ = Tags::outside;
  tool_.clear();
  if (!ours) {
    state_ = State::ended;
    return;
  }
  state_ = State::body;
  if (!to.empty() && to != "user" && to != "self") {
    recipient_ = Recipient::tool;
    tool_ = starts_with(to, "functions.") ? to.substr(10) : to;
  } else {
    recipient_ = to == "self" || channel == "analysis" ? Recipient::self : Recipient::user;
  }
}

void ReplyParser::close_body(std::vector<ReplyEvent>& events) {
  if (state_ == State::body) {
    if (dialect_ == ReplyDialect::harmony && recipient_ == Recipient::tool) {
      std::string arguments = trimmed(held_);
      events.push_back({ReplyEvent::Kind::tool_call, "", tool_, arguments.empty() ? "{}" : std::move(arguments)});
    } else {
      read_body(events, true);
    }
  }
  held_.clear();
  header_.clear();
  channel_ = false;
  tags_ = Tags::outside;
  if (state_ != State::ended) state_ = State::between;
}

void ReplyParser::emit(std::vector<ReplyEvent>& events, std::string text) const {
  if (text.empty() || recipient_ == Recipient::tool) return;
  const auto kind = recipient_ == Recipient::self ? ReplyEvent::Kind::reasoning : ReplyEvent::Kind::content;
  if (!events.empty() && events.back().kind == kind) {
    events.back().text += text;
  } else {
    events.push_back({kind, std::move(text), "", ""});
  }
}

void ReplyParser::read_body(std::vector<ReplyEvent>& events, bool end) {
  if (dialect_ == ReplyDialect::harmony && recipient_ == Recipient::tool) return;  // held until it is whole
  if (dialect_ != ReplyDialect::muse) {
    emit(events, std::move(held_));
    held_.clear();
    return;
  }
  while (!held_.empty()) {
    const size_t before = held_.size();
    const Tags tags = tags_;
    if (tags_ == Tags::outside) {
      read_text(events, end);
    } else if (tags_ == Tags::parameter ? !read_value(end) : !read_tags(events, end)) {
      return;
    }
    if (held_.size() == before && tags_ == tags) return;
  }
}

// Text for a reader, up to a tag that opens a call.
void ReplyParser::read_text(std::vector<ReplyEvent>& events, bool end) {
  constexpr std::array<std::string_view, 2> kOpeners = {kCallsOpen, kInvokeOpen};
  const size_t calls = held_.find(kCallsOpen);
  const size_t invoke = held_.find(kInvokeOpen);
  const size_t open = std::min(calls, invoke);
  if (open != std::string::npos) {
    emit(events, held_.substr(0, open));
    held_.erase(0, open == calls ? calls + kCallsOpen.size() : open);
    at_word_ = false;
    tags_ = Tags::calls;
    return;
  }
  // Held back: what may be the beginning of a tag, or the header of the next message (see control()). At the end a tag
  // that was cut goes, other text stays.
  size_t certain = partial_tail(held_, kOpeners);
  if (end) {
    const bool cut = certain < held_.size() && held_.size() - certain > 5;  // "<atem:" and more
    emit(events, cut ? held_.substr(0, certain) : held_);
    held_.clear();
    return;
  }
  size_t word = held_.size();
  while (word > 0 && !is_blank(held_[word - 1])) --word;
  const std::string_view last = std::string_view(held_).substr(word);
  if ((word > 0 || at_word_) && last.size() <= kMaxHeader && (could_become(last, "to=") || starts_with(last, "to="))) {
    certain = std::min(certain, word > 0 ? word - 1 : 0);
  }
  if (certain == 0) return;
  emit(events, held_.substr(0, certain));
  at_word_ = is_blank(held_[certain - 1]);
  held_.erase(0, certain);
}

// Tags inside a block of calls; text between them is layout. False: more is needed.
bool ReplyParser::read_tags(std::vector<ReplyEvent>& events, bool end) {
  const size_t open = held_.find('<');
  if (open == std::string::npos) {
    held_.clear();
    return false;
  }
  held_.erase(0, open);
  const size_t close = held_.find('>');
  if (close == std::string::npos) {
    if (end) held_.clear();
    return false;
  }
  const std::string tag = held_.substr(0, close + 1);
  if (tag == kCallsClose) {
    tags_ = Tags::outside;
  } else if (starts_with(tag, kInvokeOpen)) {
    tags_ = Tags::invoke;
    tool_ = name_attribute(tag);
    arguments_ = "{";
  } else if (starts_with(tag, kParameterOpen) && tags_ == Tags::invoke) {
    tags_ = Tags::parameter;
    parameter_ = name_attribute(tag);
    value_.clear();
  } else if (tag == kInvokeClose && tags_ == Tags::invoke) {
    events.push_back({ReplyEvent::Kind::tool_call, "", tool_, arguments_ + "}"});
    // One call a message needs no block around it.
    tags_ = Tags::calls;
  } else {
    held_.erase(0, 1);
    return true;
  }
  held_.erase(0, close + 1);
  return true;
}

// A value ends at a closing tag that the grammar can go on after; others are part of it. False: more is needed.
bool ReplyParser::read_value(bool end) {
  const size_t close = held_.find(kParameterClose);
  if (close == std::string::npos) {
    if (end) held_.clear();  // cut: the call is not reported
    return false;
  }
  size_t next = close + kParameterClose.size();
  while (next < held_.size() && is_blank(held_[next])) ++next;
  const std::string_view rest = std::string_view(held_).substr(next);
  if (starts_with(rest, kParameterOpen) || starts_with(rest, kInvokeClose)) {
    value_ += held_.substr(0, close);
    if (arguments_.size() > 1) arguments_ += ", ";
    arguments_ += json_string(parameter_) + ": " + json_value(value_);
    held_.erase(0, next);
    tags_ = Tags::invoke;
    return true;
  }
  if (could_become(rest, kParameterOpen) || could_become(rest, kInvokeClose)) {
    if (end) held_.clear();
    return false;
  }
  value_ += held_.substr(0, close + kParameterClose.size());
  held_.erase(0, close + kParameterClose.size());
  return true;
}

std::string ReplyParser::json_value(const std::string& raw) const {
  const auto tool = types_.find(tool_);
  const bool known = tool != types_.end() && tool->second.count(parameter_) != 0;
  if (known && tool->second.at(parameter_) == "string") return json_string(raw);
  // Nesting is bounded so that reading it cannot be deep.
  if (!check_json(raw, {.max_depth = 64, .max_keys = 10'000}).fits()) return json_string(raw);
  const Json parsed = Json::parse(raw, nullptr, false);
  if (parsed.is_discarded() || parsed.is_string()) return json_string(raw);
  return parsed.dump();
}

}  // namespace slipring
