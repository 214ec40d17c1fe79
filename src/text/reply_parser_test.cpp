// Channels and tool calls: whole, in every cut, and cut off.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <slipring/reply_parser.h>

namespace slipring {
namespace {

// A reply in which control tokens are spelled out, fed in pieces of `step` bytes between them.
std::vector<ReplyEvent> parse(ReplyDialect dialect, std::string_view reply, size_t step,
                              const std::string& tools = "") {
  ReplyParser parser(dialect, tool_parameter_types(tools));
  std::vector<ReplyEvent> all;
  const auto take = [&all](std::vector<ReplyEvent> events) {
    for (ReplyEvent& event : events) {
      if (!all.empty() && all.back().kind == event.kind && event.kind != ReplyEvent::Kind::tool_call) {
        all.back().text += event.text;
      } else {
        all.push_back(std::move(event));
      }
    }
  };
  while (!reply.empty() && !parser.ended()) {
    const size_t open = std::min(reply.find("<|"), reply.size());
    if (open == 0) {
      const size_t close = reply.find("|>") + 2;
      take(parser.control(reply.substr(0, close)));
      reply.remove_prefix(close);
      continue;
    }
    const size_t count = std::min(open, step);
    take(parser.text(reply.substr(0, count)));
    reply.remove_prefix(count);
  }
  take(parser.finish());
  return all;
}

std::string shown(const std::vector<ReplyEvent>& events) {
  std::string text;
  for (const ReplyEvent& event : events) {
    if (!text.empty()) text += " / ";
    if (event.kind == ReplyEvent::Kind::tool_call) {
      text += "call " + event.name + " " + event.arguments;
    } else {
      text += (event.kind == ReplyEvent::Kind::content ? "user " : "self ") + event.text;
    }
  }
  return text;
}

// The same events however the text was cut.
void expect(ReplyDialect dialect, std::string_view reply, const std::string& wanted, const std::string& tools = "") {
  for (size_t step = 1; step <= reply.size(); step = step < 24 ? step + 1 : step * 2) {
    EXPECT_EQ(shown(parse(dialect, reply, step, tools)), wanted) << "in pieces of " << step << ": " << reply;
  }
}

constexpr auto kMuse = ReplyDialect::muse;
constexpr const char* kTools = R"([{"type": "function", "function": {"name": "get", "parameters": {"type": "object",
  "properties": {"zip": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array"}}}}}])";

TEST(ReplyParser, PlainRepliesAreContent) {
  expect(ReplyDialect::plain, "Hello to=self <atem:invoke x", "user Hello to=self <atem:invoke x");
}

TEST(ReplyParser, MuseReasoningAndAnswer) {
  expect(kMuse, " to=self<|message|>2 + 2\nis 4.<|eom|><|start|>assistant to=user<|message|>It is 4.<|eot|>",
         "self 2 + 2\nis 4. / user It is 4.");
  expect(kMuse, " to=user<|message|>Hi", "user Hi");
  expect(kMuse, "<|message|>Hi", "user Hi");
}

TEST(ReplyParser, MuseReplyWithoutFramingIsContent) {
  expect(kMuse, "In the beginning God created", "user In the beginning God created");
  expect(kMuse, "\nIn", "user \nIn");
}

TEST(ReplyParser, MuseCutInTheHeaderShowsNothing) {
  for (const char* cut : {" t", " to=", " to=us", "assistant to=self"}) expect(kMuse, cut, "");
  expect(kMuse, " to=self<|message|>hm<|eom|><|start|>assis", "self hm");
}

TEST(ReplyParser, MuseToolCalls) {
  expect(
      kMuse,
      " to=self<|message|>Look it up.<|eom|><|start|>assistant to=get<|message|><atem:function_calls>\n"
      "<atem:invoke name=\"get\">\n<atem:parameter name=\"zip\">0123</atem:parameter>\n"
      "<atem:parameter name=\"days\">3</atem:parameter>\n<atem:parameter name=\"tags\">[\"a\", 1]</atem:parameter>\n"
      "<atem:parameter name=\"other\">some \"text\"\n</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eot|>",
      "self Look it up. / call get {\"zip\": \"0123\", \"days\": 3, \"tags\": [\"a\",1], \"other\": \"some "
      "\\\"text\\\"\\n\"}",
      kTools);
  expect(kMuse, " to=a.b<|message|><atem:function_calls><atem:invoke name=\"a.b\"></atem:invoke></atem:function_calls>",
         "call a.b {}");
  // Two in one block, and a block in the middle of the user's channel.
  expect(kMuse,
         " to=user<|message|>Wait.<atem:function_calls><atem:invoke name=\"x\"></atem:invoke>\n<atem:invoke name=\"y\">"
         "</atem:invoke></atem:function_calls> Done.",
         "user Wait. / call x {} / call y {} / user  Done.");
}

TEST(ReplyParser, ClosingTagsInsideValuesAreValues) {
  expect(kMuse,
         " to=w<|message|><atem:invoke name=\"w\"><atem:parameter name=\"t\">a</atem:parameter> b</atem:parameter>"
         "</atem:invoke>",
         "call w {\"t\": \"a</atem:parameter> b\"}");
}

TEST(ReplyParser, ACallThatIsCutOffIsNotReportedAndNoTagIsShown) {
  const std::string whole =
      "<atem:function_calls>\n<atem:invoke name=\"w\">\n<atem:parameter name=\"t\">1</atem:parameter>\n</atem:invoke>";
  for (size_t size = 0; size < whole.size(); ++size) {
    expect(kMuse, " to=w<|message|>" + whole.substr(0, size), "");
    if (size > 6) expect(kMuse, " to=user<|message|>So: " + whole.substr(0, size), "user So: ");
  }
  expect(kMuse, " to=user<|message|>a < b", "user a < b");
  expect(kMuse, " to=user<|message|>a <atmosphere> to", "user a <atmosphere> to");
}

TEST(ReplyParser, MuseChannelSwitchWithoutClosing) {
  expect(kMuse, " to=self<|message|>I call it. to=get<|message|><atem:invoke name=\"get\"></atem:invoke>",
         "self I call it. / call get {}");
  expect(kMuse, " to=user<|message|>go to=left now", "user go to=left now");
}

TEST(ReplyParser, AnotherRolesTurnEndsTheReply) {
  expect(kMuse, " to=user<|message|>Hi<|eom|><|start|>tool get<|message|>invented", "user Hi");
}

TEST(ReplyParser, Harmony) {
  expect(ReplyDialect::harmony,
         "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Answer.<|return|>",
         "self Think. / user Answer.");
  expect(ReplyDialect::harmony,
         "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{\"zip\": 1}<|call|>",
         "call get {\"zip\": 1}");
  expect(ReplyDialect::harmony, "<|channel|>commentary to=functions.get<|message|>{\"zip\"", "");
}

// Found by fuzzing: such a name threw.
TEST(ReplyParser, NamesThatAreNoUtf8) {
  expect(kMuse,
         " to=self<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter "
         "name=\"x\xDE\">1</atem:parameter>\n"
         "</atem:invoke></atem:function_calls>",
         "call f {\"x\xEF\xBF\xBD\": 1}");
}

// Found by fuzzing: the word as text was taken for the token, if it came in one piece.
TEST(ReplyParser, AChannelIsAToken) {
  expect(ReplyDialect::harmony, "channel=es", "user channel=es");
  expect(kMuse, "assistant channel=final", "user assistant channel=final");
  expect(kMuse, "channel=es<|message|>to=", "user channel=esto=");
}

}  // namespace
}  // namespace slipring
