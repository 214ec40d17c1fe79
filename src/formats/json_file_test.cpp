// JSON from strangers: bounds are met before anything is built, in linear time.
#include "formats/json_file.h"

#include <chrono>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <slipring/error.h>

#include "formats/json_check.h"

namespace slipring {
namespace {

std::string refusal(std::string_view text, const JsonLimits& limits) {
  try {
    parse_json(text, "a.json", limits);
    return "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_file);
    return error.what();
  }
}

std::string times(std::string_view part, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += part;
  return text;
}

TEST(Json, BoundsAreMetExactly) {
  const JsonLimits limits{.max_bytes = 1000, .max_depth = 3};
  EXPECT_EQ(parse_json(R"([[{"a":1}]])", "a.json", limits)[0][0]["a"], 1);
  EXPECT_NE(refusal(R"([[{"a":[]}]])", limits).find("nested more than 3 deep"), std::string::npos);
  EXPECT_NE(refusal(times("[", 400), limits).find("nested more than 3 deep"), std::string::npos);
  EXPECT_NE(refusal(R"({"a":1,"b":{"c":1,"c":2}})", limits).find("key 'c' twice"), std::string::npos);
  EXPECT_EQ(parse_json(R"({"a":{"c":1},"b":{"c":2}})", "a.json", limits)["b"]["c"], 2);
  EXPECT_EQ(parse_json(R"({"a":1,"a":2})", "a.json", {.unique_keys = false})["a"], 2);
  EXPECT_NE(refusal("[1,]", limits).find("near byte 4"), std::string::npos);
  EXPECT_NE(refusal("[1e999]", limits).find("number"), std::string::npos);
  EXPECT_NE(refusal("", limits).find("malformed"), std::string::npos);
  EXPECT_TRUE(check_json(R"([{"a":1,"b":2},{"c":1}])", {.max_keys = 2}).fits());
  EXPECT_TRUE(check_json(R"([{"a":1,"b":2,"c":3}])", {.max_keys = 2}).too_many_keys);
}

// nlohmann's parser with a callback takes the square: half a minute for these 600 kB.
TEST(Json, ListsOfManyObjectsTakeLinearTime) {
  const std::string text = "[" + times("{},", 200'000) + "{}]";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(parse_json(text, "a.json").size(), 200'001U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace slipring
