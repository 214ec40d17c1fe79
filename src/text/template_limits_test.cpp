// Templates that mean harm: what they may use up is counted before it is used. The sizes are small and the limits with
// them, so that what slips through is a wrong answer here and not a machine that hangs.
#include <gtest/gtest.h>

#include <slipring/error.h>

#include "text/jinja/parser.h"
#include "text/jinja/renderer.h"

namespace slipring::jinja {
namespace {

std::string rendered(const std::string& source, const RenderLimits& limits) {
  const Block block = parse(source);
  try {
    Renderer renderer(limits, 0);
    return renderer.render(block, Dict());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << source;
    return error.what();
  }
}

void expect_too_many_steps(const std::string& source, int64_t steps = 100'000) {
  const std::string got = rendered(source, {.steps = steps});
  EXPECT_NE(got.find("expected at most " + std::to_string(steps) + " steps"), std::string::npos) << source << "\n"
                                                                                                 << got.substr(0, 200);
}

void expect_too_large(const std::string& source, size_t bytes) {
  const std::string got = rendered(source, {.produced_bytes = bytes, .output_bytes = bytes / 4});
  EXPECT_NE(got.find(std::to_string(bytes) + " in all"), std::string::npos) << source << "\n" << got.substr(0, 200);
}

// Two lists of 22 levels that each hold the level below twice: small, and four million values to walk.
const std::string kShared =
    "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(22) %}"
    "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}";

TEST(TemplateLimits, ComparingCountsEveryValue) {
  for (const char* test :
       {"ns.a == ns.b", "ns.a != ns.b", "ns.a < ns.b", "ns.a >= ns.b", "ns.a in [ns.b]", "[ns.a].count(ns.b)",
        "[ns.a].index(ns.b)", "[ns.a, ns.b]|unique|list|length", "[ns.a, ns.b]|sort|length", "[ns.a, ns.b]|max|length",
        "ns.a is eq(ns.b)", "ns.a is lt(ns.b)", "ns.a is in([ns.b])", "ns.a is sameas(ns.b)",
        "{'k': ns.a} == {'k': ns.b}", "(ns.a, 1) == (ns.b, 1)"}) {
    expect_too_many_steps(kShared + "{{ " + test + " }}");
  }
  const RenderLimits small{.output_bytes = 1 << 16};
  EXPECT_NE(rendered(kShared + "{{ ns.a }}", small).find("expected at most 65536 bytes"), std::string::npos);
  EXPECT_NE(rendered(kShared + "{{ ns.a|tojson }}", small).find("expected at most 65536 bytes"), std::string::npos);
}

TEST(TemplateLimits, LoopsOverLongStringsAndListsCountTheirBytesAndItems) {
  const std::string text = "{% set s = 'ab' * 32000 %}{% set t = 'ab' * 32000 %}{% for i in range(1000) %}{% set x = ";
  for (const char* work : {"s.count('abx')",
                           "s|length",
                           "s|count",
                           "s.isalpha()",
                           "s.find('x')",
                           "s.rfind('x')",
                           "'x' in s",
                           "s == t",
                           "s < t",
                           "s.strip('ab')",
                           "s|trim('ab')|length",
                           "s.startswith(t)",
                           "s is lower",
                           "s is eq(t)",
                           "'x'.strip(s)",
                           "s.isspace()",
                           "s.split('x', 0)|length",
                           "{}.get(s)",
                           "s in {}",
                           "{}[s]",
                           "s|int",
                           "s|float"}) {
    expect_too_many_steps(text + work + " %}{% endfor %}");
  }
  const std::string list =
      "{% set l = range(4000)|list %}{% set m = range(4000)|list %}{% for i in range(1000) %}{% set x = ";
  for (const char* work : {"-1 in l", "l == m", "l < m", "l.count(-1)", "l|unique|first", "l|min"}) {
    expect_too_many_steps(list + work + " %}{% endfor %}");
  }
  // A loop's own depth is that of its items, asked for once.
  EXPECT_EQ(rendered("{% for i in range(30000) %}{% set x = [loop] %}{% endfor %}done", {}), "done");
  // Names are hashed, on each level of scopes.
  const std::string name(20'000, 'n');
  expect_too_many_steps("{% set " + name + " = 1 %}{% for i in range(1000) %}{% set x = " + name + " %}{% endfor %}");
  std::string deep;
  for (int i = 0; i < 120; ++i) deep += "{% with %}";
  deep += "{% for i in range(9000) %}{{ messages }}{% endfor %}";
  for (int i = 0; i < 120; ++i) deep += "{% endwith %}";
  expect_too_many_steps(deep);
  std::string arguments;
  std::string parameters;
  for (int i = 0; i < 3000; ++i) {
    arguments += (i > 0 ? ",a" : "a") + std::to_string(i) + "=1";
    parameters += (i > 0 ? ",b" : "b") + std::to_string(i);
  }
  expect_too_many_steps("{% macro m(" + parameters + ") %}{% endmacro %}{{ m(" + arguments + ") }}");
}

TEST(TemplateLimits, SearchTakesLinearTimeWhateverIsSearched) {
  // The product of both lengths would be 10^12 comparisons.
  const RenderLimits limits;
  const std::string strings = "{% set s = 'a' * 2000000 %}{% set p = 'a' * 1000000 %}";
  EXPECT_EQ(rendered(strings + "{{ s.find(p ~ 'b') }} {{ s.rfind('b' ~ p) }}", limits), "-1 -1");
  EXPECT_EQ(rendered(strings + "{{ (p ~ 'b') in s }} {{ s.count(p ~ 'b') }}", limits), "False 0");
  EXPECT_EQ(rendered(strings + "{{ s.replace(p ~ 'b', 'x')|length }}", limits), "2000000");
  EXPECT_EQ(rendered(strings + "{{ s.split(p ~ 'b')|length }} {{ s.rsplit('b' ~ p)|length }}", limits), "1 1");
  EXPECT_EQ(rendered(strings + "{{ s.partition(p ~ 'b')[1]|length }}", limits), "0");
  EXPECT_EQ(rendered("{{ ('b' * 500000 ~ 'a').strip('c' * 500000 ~ 'b') }}", limits), "a");
}

TEST(TemplateLimits, SearchFindsWhatPythonFinds) {
  const RenderLimits limits;
  EXPECT_EQ(rendered("{{ 'aXbXc'.split('X') }}{{ 'aXbXc'.split('X', 1) }}{{ 'aXbXc'.rsplit('X', 1) }}", limits),
            "['a', 'b', 'c']['a', 'bXc']['aXb', 'c']");
  EXPECT_EQ(rendered("{{ 'aaaaa'.split('aa') }}{{ 'aaaaa'.rsplit('aa') }}{{ 'a'.split('abc') }}", limits),
            "['', '', 'a']['a', '', '']['a']");
  EXPECT_EQ(
      rendered("{{ 'éaéa'.find('a') }}{{ 'éaéa'.rfind('a') }}{{ 'éaéa'.find('') }}{{ 'éaéa'.rfind('') }}", limits),
      "1304");
  EXPECT_EQ(rendered("{{ 'aXbXc'.partition('X') }}{{ 'aXbXc'.rpartition('X') }}", limits),
            "('a', 'X', 'bXc')('aXb', 'X', 'c')");
  EXPECT_EQ(
      rendered("{{ 'aaaa'.replace('aa', 'b') }}{{ 'éa'.replace('', '-') }}{{ 'ab'.replace('', '-', 1) }}", limits),
      "bb-é-a--ab");
  EXPECT_EQ(rendered("{{ 'a\\r\\nb\\n\\nc'.splitlines() }}{{ 'a\\r\\nb\\n'.splitlines(true) }}", limits),
            "['a', 'b', '', 'c']['a\\r\\n', 'b\\n']");
  EXPECT_EQ(rendered("{{ 'aéb'[::-1] }}{{ 'aéb'[1] }}{{ 'aéb'[-1:] }}{{ 'abc'[::2] }}{{ 'aéb'|list }}", limits),
            "béaébac['a', 'é', 'b']");
}

TEST(TemplateLimits, RoomIsPaidForBeforeItIsTaken) {
  expect_too_large("{{ ('a' * 100000).split('a')|length }}", 1 << 20);
  expect_too_large("{{ ('a ' * 100000).split()|length }}", 1 << 20);
  expect_too_large("{{ ('\n' * 100000).splitlines()|length }}", 1 << 20);
  expect_too_large("{{ ('a' * 100000)|list|length }}", 1 << 20);
  expect_too_large(
      "{% set l = ('a b c d e f g h ' * 20).split() %}{% for i in range(999) %}{% set x = l + l %}{% endfor %}",
      1 << 20);
  // Small values with much around them: empty strings, dictionaries, methods, names that are not there.
  for (const char* value : {"nothing|d", "{}", "'a'.strip", "nothing", "{}['nothing']", "{'k': 1}", "()", "[]|list",
                            "'ab'.partition('x')", "dict(a=1)", "loop.cycle"}) {
    std::string list;
    for (int i = 0; i < 200; ++i) list += std::string(value) + ",";
    expect_too_large("{% set ns = namespace(l=[]) %}{% for i in range(200) %}{% set ns.l = [ns.l|length, [" + list +
                         "]] %}{% endfor %}",
                     3 << 20);
  }
  // What Python does not take either.
  EXPECT_NE(rendered("{{ 'a'.ljust(1000, 'bc') }}", {}).find("one character"), std::string::npos);
  EXPECT_EQ(rendered("{{ 'a'.ljust(3, 'é') }}{{ 'a'.center(4) }}|", {}), "aéé a  |");
}

TEST(TemplateLimits, AStopEndsARendering) {
  const Block block = parse("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}");
  const std::atomic<bool> stop{true};
  Renderer renderer({}, 0, &stop);
  try {
    renderer.render(block, Dict());
    FAIL() << "rendered";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cancelled);
  }
}

TEST(TemplateLimits, MessagesStayShort) {
  const std::string huge = "{% set s = 'é' * 100000 %}";
  for (const char* refused :
       {"s.index('x' ~ s)", "raise_exception(s)", "nothing[s].x", "{}[s].x", "{}[s]()", "{}[s] + 1"}) {
    EXPECT_LT(rendered(huge + "{{ " + refused + " }}", {}).size(), 8300U) << refused;
  }
}

}  // namespace
}  // namespace slipring::jinja
