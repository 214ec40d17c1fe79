// Any bytes as the body of each endpoint: a 400, or a request that can be used. And as a reply that a model made.
#include <algorithm>
#include <string>
#include <string_view>

#include <slipring/error.h>
#include <slipring/reply_parser.h>

#include "server/api_error.h"
#include "server/wire_request.h"
#include "text/jinja/value.h"

namespace {

using namespace slipring;

template <class Action>
void tolerate_refusals(Action action) {
  try {
    action();
  } catch (const server::ApiError& error) {
    if (error.status() != 400) __builtin_trap();
    error.body();
  }
}

// The joined events, fed in pieces of `step`.
std::string parsed(ReplyDialect dialect, std::string_view text, size_t step) {
  ReplyParser parser(dialect, tool_parameter_types(text));
  std::string content;
  std::string reasoning;
  std::string calls;
  const auto take = [&](const std::vector<ReplyEvent>& events) {
    for (const ReplyEvent& event : events) {
      if (event.kind == ReplyEvent::Kind::tool_call) calls += event.name + event.arguments;
      (event.kind == ReplyEvent::Kind::reasoning ? reasoning : content) += event.text;
    }
  };
  while (!text.empty() && !parser.ended()) {
    const size_t open = std::min(text.find("<|"), text.size());
    const size_t close = text.find("|>");
    if (open == 0 && close != std::string_view::npos) {
      take(parser.control(text.substr(0, close + 2)));
      text.remove_prefix(close + 2);
    } else {
      const size_t count = std::min(std::max<size_t>(open, 1), step);
      take(parser.text(text.substr(0, count)));
      text.remove_prefix(count);
    }
  }
  take(parser.finish());
  return content + "\x01" + reasoning + "\x01" + calls;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  tolerate_refusals([&] {
    const server::ChatRequest request = server::parse_chat(body);
    // What reaches the template must be JSON that it can read.
    jinja::from_json(request.messages);
    if (!request.tools.empty()) jinja::from_json(request.tools);
    if (!request.variables.empty()) jinja::from_json(request.variables);
  });
  tolerate_refusals([&] { server::parse_completion(body); });
  tolerate_refusals([&] { server::parse_tokenize(body); });
  tolerate_refusals([&] { server::parse_detokenize(body); });
  for (const ReplyDialect dialect : {ReplyDialect::muse, ReplyDialect::harmony}) {
    const std::string whole = parsed(dialect, body, size + 1);
    if (parsed(dialect, body, 1) != whole || parsed(dialect, body, 7) != whole) __builtin_trap();
  }
  return 0;
}
