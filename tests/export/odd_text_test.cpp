// Program texts with one number that no program has: refused by name, before anything is computed with it.
#include <fstream>
#include <gtest/gtest.h>
#include <regex>

#include <slipring/error.h>

#include "engine/export.h"
#include "fixtures.h"
#include "formats/temp_folder.h"
#include "program/parse.h"
#include "program/weights_file.h"

namespace slipring {
namespace {

TEST(OddProgramText, NumbersThatNoProgramHas) {
  const testing::TempFolder folder;
  export_model(*Model::load(test::data("gemma2"), {.threads = 2}), {.quantise = {}}, folder.path());
  WeightsFile weights(folder.path(), test::pool());
  std::ifstream file(folder.path() / "main.program");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_NO_THROW(parse_program(text, weights, "sound"));
  const std::pair<const char*, std::vector<const char*>> odd[] = {
      {"(magnitude )[^ ]+", {"nan", "inf", "-1", "0"}},
      {"(frequencies )[^\n]+", {"", "1 nan", "-1", "inf"}},
      {"(eps=)[^ ,}]+", {"nan", "0", "-1"}},
      {"(factor=)[^ ,}]+", {"nan", "inf", "-2", "0"}},
      {"( scale=)[^ ,}]+", {"nan", "-1", "0"}},
      {"(softcap=)[^ ,}]+", {"nan", "-1"}},
      {"(head_dim [0-9]+ )[A-Z0-9]+(\n)", {"Q8_0", "I32", "F64"}},
  };
  for (const auto& [pattern, values] : odd) {
    const std::regex place(pattern);
    ASSERT_TRUE(std::regex_search(text, place)) << pattern;
    for (const char* value : values) {
      const std::string changed =
          std::regex_replace(text, place, std::string("$1") + value + "$2", std::regex_constants::format_first_only);
      try {
        parse_program(changed, weights, "odd");
        ADD_FAILURE() << pattern << " " << value << ": accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::bad_file) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace slipring
