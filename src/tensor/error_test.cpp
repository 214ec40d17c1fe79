#include <gtest/gtest.h>

#include <slipring/error.h>

namespace slipring {
namespace {

std::string line_of(std::string got) {
  return Error(ErrorCode::bad_file, {.where = "m.gguf", .expected = "a name", .got = std::move(got), .advice = {}})
      .what();
}

TEST(Error, SaysWhereWhatAndWhatToDo) {
  const Error error(ErrorCode::io, {.where = "m.gguf", .expected = "a name", .got = "none", .advice = "give one"});
  EXPECT_STREQ(error.what(), "m.gguf: none, expected a name; give one");
}

// File contents end up in messages: none of them may start a new line or tell the terminal what to do.
TEST(Error, HoldsNothingThatATerminalObeys) {
  EXPECT_EQ(line_of("a\x1b]0;pwn\x07\x1b[2J\n\r\t\x7f"
                    "b"),
            "m.gguf: a ]0;pwn  [2J    b, expected a name");
  EXPECT_EQ(line_of("a\xc2\x9b"
                    "2Jb"),
            "m.gguf: a  2Jb, expected a name");
  EXPECT_EQ(line_of("größe \xe2\x80\x9c"), "m.gguf: größe \xe2\x80\x9c, expected a name");
}

TEST(Error, IsOfALengthThatCanBeRead) {
  EXPECT_LT(line_of(std::string(1'000'000, 'x')).size(), 1100U);
  std::string wide;
  for (int i = 0; i < 1000; ++i) wide += "\xe2\x82\xac";
  const std::string line = line_of(wide);
  EXPECT_NE(line.find("\xe2\x82\xac..., expected"), std::string::npos) << line;
}

}  // namespace
}  // namespace slipring
