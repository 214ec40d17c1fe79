// Unit tests of the safetensors reader: case 14 of odd and hostile files, byte for byte.
#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include "formats/test_bytes.h"

namespace slipring {
namespace {

using testing::Bytes;
using testing::expect_error;
using testing::TempFolder;

// The header's length, the header, then `data` zero bytes.
Bytes file_of(std::string_view header, size_t data) {
  return Bytes().string(header).zeros(data);
}

std::string tensor(std::string_view name, std::string_view dtype, std::string_view shape, int begin, int end) {
  return "\"" + std::string(name) + R"(":{"dtype":")" + std::string(dtype) + R"(","shape":)" + std::string(shape) +
         R"(,"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

SafetensorsHeader parse(const Bytes& bytes) {
  return SafetensorsHeader::parse(bytes.span(), "odd.safetensors");
}

void refuse(const Bytes& bytes, std::initializer_list<std::string_view> parts, ErrorCode code = ErrorCode::bad_file) {
  expect_error(code, parts, [&] { parse(bytes); });
}

TEST(Safetensors, ReadsAGoodFile) {
  const auto header =
      parse(file_of(R"({"__metadata__":{"format":"pt"},)" + tensor("b", "I32", "[2]", 16, 24) + "," +
                        tensor("a", "F32", "[2,2]", 0, 16) + "," + tensor("empty", "F32", "[0,3]", 16, 16) + "," +
                        tensor("scalar", "U8", "[]", 24, 25) + "}   ",
                    25));
  ASSERT_EQ(header.entries.size(), 4U);
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[1].name, "empty");
  EXPECT_EQ(header.entries[2].name, "b");
  EXPECT_EQ(header.entries[2].begin, header.entries[0].begin + 16);
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(Safetensors, Case14DuplicatesOverlapsGapsAndTypes) {
  const std::string a = tensor("a", "F32", "[2]", 0, 8);
  refuse(file_of("{" + a + "," + a + "}", 8), {"odd.safetensors", "'a'", "twice"});
  refuse(file_of("{" + a + "," + tensor("b", "F32", "[2]", 4, 12) + "}", 12), {"'b'", "overlap"});
  refuse(file_of("{" + a + "," + tensor("b", "F32", "[2]", 12, 20) + "}", 20), {"'b'", "gap"});
  refuse(file_of("{" + tensor("a", "F32", "[2]", 4, 12) + "}", 12), {"'a'", "gap"});
  refuse(file_of("{" + tensor("a", "F8_E4M3", "[8]", 0, 8) + "}", 8), {"'a'", "F8_E4M3"}, ErrorCode::unsupported);
  refuse(file_of("{" + tensor("a", "bf16", "[4]", 0, 8) + "}", 8), {"'a'", "'bf16'"});
  refuse(file_of("{" + tensor("a", "Q8_0", "[32]", 0, 34) + "}", 34), {"'a'", "'Q8_0'"});
  refuse(file_of("{" + a + "}", 9), {"1 bytes after the last tensor"});
  refuse(file_of("{" + a + "}", 7), {"7 bytes of data", "at least 8", "'a'"});
}

TEST(Safetensors, SizesThatDoNotFit) {
  refuse(file_of("{" + tensor("a", "F32", "[3]", 0, 8) + "}", 8), {"'a'", "[0, 8)", "12 bytes"});
  refuse(file_of("{" + tensor("a", "F32", "[2]", 8, 0) + "}", 8), {"'a'"});
  refuse(file_of("{" + tensor("a", "F32", "[-2]", 0, 8) + "}", 8), {"'a'", "dimension"});
  refuse(file_of("{" + tensor("a", "F32", "[2.0]", 0, 8) + "}", 8), {"'a'", "dimension"});
  refuse(file_of("{" + tensor("a", "F32", "[4294967296,4294967296]", 0, 0) + "}", 8), {"'a'", "dimension"});
  refuse(file_of("{" + tensor("a", "F32", "[0,9223372036854775807,9223372036854775807]", 0, 0) + "}", 0), {"'a'"});
  refuse(file_of("{" + tensor("a", "F32", "[1,1,1,1,1,1,1,1,2]", 0, 8) + "}", 8), {"'a'", "8 dimensions"});
  refuse(Bytes().u64(uint64_t{1} << 63).zeros(16), {"9223372036854775808"});
  refuse(Bytes().u64(100).zeros(16), {"100 bytes of the header"});
  refuse(Bytes().raw("abc"), {"ends at byte 3"});
}

TEST(Safetensors, MalformedHeaders) {
  for (const std::string_view text :
       {"", "[]", "7", "{", "{\"a\":1}", "{\"a\":{}}", "{\"a\":{\"dtype\":4}}", "\xFF\xFE", "{\"__metadata__\":[]}",
        "{\"__metadata__\":{\"a\":1}}", "{\"a\":1e999}"}) {
    EXPECT_THROW(parse(file_of(text, 0)), Error) << text;
  }
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  refuse(file_of(deep, 0), {"nested more than 8"});
}

TEST(Safetensors, EveryCutIsRefused) {
  const std::string whole = file_of("{" + tensor("a", "F32", "[2]", 0, 8) + "}", 8).str();
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(parse(Bytes().raw(whole.substr(0, length))), Error) << length;
  }
}

TEST(Safetensors, MisalignedDataIsCopied) {
  const TempFolder folder;
  Bytes bytes;
  const std::string header = "{" + tensor("a", "U8", "[1]", 0, 1) + "," + tensor("b", "F32", "[1]", 1, 5) + "," +
                             tensor("c", "F32", "[1,1,1,1,1]", 5, 9) + "}";
  bytes.string(header).zeros(1).number(1.5F).number(2.5F);
  const auto file = SafetensorsFile::open(folder.write("m.safetensors", bytes.str()));
  const Tensor b = file->tensor("b");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.raw()) % 4, 0U);
  EXPECT_EQ(b.data<float>()[0], 1.5F);
  expect_error(ErrorCode::not_found, {"'d'"}, [&] { file->tensor("d"); });
  expect_error(ErrorCode::unsupported, {"'c'", "5 dimensions"}, [&] { file->tensor("c"); });
}

}  // namespace
}  // namespace slipring
