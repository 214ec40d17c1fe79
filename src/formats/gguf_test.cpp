// Unit tests of the GGUF header: cases 12 and 13 of odd and hostile files, byte for byte.
#include "formats/gguf.h"

#include <gtest/gtest.h>

#include "formats/byte_cursor.h"
#include "formats/model_files.h"
#include "formats/test_bytes.h"

namespace slipring {
namespace {

using testing::Bytes;
using testing::expect_error;
using testing::TempFolder;

constexpr uint32_t kU8 = 0, kI32 = 5, kU32 = 4, kF32 = 6, kBool = 7, kString = 8, kArray = 9, kU64 = 10;

GgufHeader parse(const Bytes& bytes) {
  return GgufHeader::parse(bytes.span(), "odd.gguf");
}

void refuse(const Bytes& bytes, std::initializer_list<std::string_view> parts, ErrorCode code = ErrorCode::bad_file) {
  expect_error(code, parts, [&] { parse(bytes); });
}

Bytes tensor_entry(Bytes bytes, std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type,
                   uint64_t offset) {
  bytes.string(name).u32(static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) bytes.u64(dim);
  return bytes.u32(type).u64(offset);
}

// Two tensors: a [2, 4] f32 (32 bytes), b [3] f32 (12 bytes), and a few keys.
Bytes good_file() {
  Bytes bytes = Bytes::gguf(2, 3);
  bytes.string("general.architecture").u32(kString).string("llama");
  bytes.string("llama.block_count").u32(kU32).u32(2);
  bytes.string("tokenizer.ggml.tokens").u32(kArray).u32(kString).u64(3).string("a").string("").string("a");
  bytes = tensor_entry(bytes, "a", {4, 2}, 0, 0);
  bytes = tensor_entry(bytes, "b", {3}, 0, 32);
  bytes.align(32);
  for (int i = 0; i < 11; ++i) bytes.number(static_cast<float>(i));
  return bytes;
}

TEST(Gguf, ReadsAGoodFile) {
  const Bytes bytes = good_file();
  const GgufHeader header = parse(bytes);
  EXPECT_EQ(header.version(), 3U);
  ASSERT_EQ(header.tensors().size(), 2U);
  const GgufTensor* a = header.find_tensor("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, Shape({2, 4}));
  EXPECT_EQ(header.find_tensor("b")->begin, a->begin + 32);
  EXPECT_EQ(header.find_tensor("c"), nullptr);
  EXPECT_EQ(as_integer(*header.find("llama.block_count")), 2);
  EXPECT_EQ(as_real(*header.find("llama.block_count")), 2.0);
  EXPECT_EQ(as_text(*header.find("general.architecture")), "llama");
  EXPECT_EQ(as_boolean(*header.find("llama.block_count")), std::nullopt);
  EXPECT_EQ(as_texts(*header.find("tokenizer.ggml.tokens")), (std::vector<std::string_view>{"a", "", "a"}));
}

TEST(Gguf, Version2HasTheSameLayout) {
  Bytes bytes = Bytes::gguf(0, 1, 2);
  bytes.string("k").u32(kBool).number(uint8_t{1});
  EXPECT_EQ(as_boolean(*parse(bytes).find("k")), true);
}

TEST(Gguf, ArraysOfAnyWidthConvert) {
  Bytes bytes = Bytes::gguf(0, 4);
  bytes.string("types").u32(kArray).u32(kU8).u64(2).raw("\x01\x03");  // token_type stored as u8
  bytes.string("i").u32(kArray).u32(kI32).u64(2).number(int32_t{-1}).number(int32_t{7});
  bytes.string("flags").u32(kArray).u32(kBool).u64(2).raw(std::string_view("\x01\x00", 2));
  bytes.string("big").u32(kU64).u64(uint64_t{1} << 63);
  const GgufHeader header = parse(bytes);
  EXPECT_EQ(as_integers(*header.find("types")), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(as_reals(*header.find("types")), (std::vector<double>{1, 3}));
  EXPECT_EQ(as_integers(*header.find("i")), (std::vector<int64_t>{-1, 7}));
  EXPECT_EQ(as_integers(*header.find("flags")), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(as_integer(*header.find("big")), std::nullopt);
  EXPECT_EQ(as_integer(*header.find("i")), std::nullopt);
}

TEST(Gguf, Case12Alignment) {
  for (const uint32_t alignment : {0U, 1U, 3U, 1U << 31}) {
    Bytes bytes = Bytes::gguf(0, 1);
    bytes.string("general.alignment").u32(kU32).u32(alignment);
    EXPECT_EQ(bytes.size(), 57U);
    refuse(bytes, {"odd.gguf", "general.alignment", std::to_string(alignment)});
  }
  Bytes bytes = Bytes::gguf(0, 1);
  bytes.string("general.alignment").u32(kF32).number(32.0F);
  EXPECT_EQ(bytes.size(), 57U);
  refuse(bytes, {"general.alignment", "f32"});
}

TEST(Gguf, Case12ZeroDimensionIsAllowedAndHoldsNothing) {
  Bytes bytes = tensor_entry(Bytes::gguf(1, 0), "t", {4, 0}, 0, 0);
  EXPECT_EQ(bytes.size(), 65U);
  bytes.align(32);
  const GgufHeader header = parse(bytes);
  EXPECT_EQ(header.find_tensor("t")->shape, Shape({0, 4}));
  EXPECT_EQ(header.find_tensor("t")->bytes, 0U);
  // The other factors are still checked.
  refuse(tensor_entry(Bytes::gguf(1, 0), "t", {0, uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0), {"'t'", "dimension 2"});
}

TEST(Gguf, Case12HugeNumbers) {
  Bytes key = Bytes::gguf(0, 1);
  key.u64(uint64_t{1} << 63);
  EXPECT_EQ(key.size(), 32U);
  refuse(key, {"metadata key"});  // fewer bytes than any key takes
  refuse(Bytes(key).zeros(64), {"metadata key 0", "9223372036854775808"});
  const Bytes count = Bytes::gguf(uint64_t{1} << 60, 0);
  EXPECT_EQ(count.size(), 24U);
  refuse(count, {"tensor count", "1152921504606846976"});
  refuse(Bytes::gguf(0, uint64_t{1} << 60), {"metadata key count"});
  refuse(Bytes::gguf(1000, 0), {"tensor count 1000", "24 bytes"});
  for (const uint32_t rank : {5U, 0xFFFFFFFFU}) {
    Bytes bytes = Bytes::gguf(1, 0);
    bytes.string("t").u32(rank).zeros(80);
    refuse(bytes, {"'t'", std::to_string(rank) + " dimensions"});
  }
  for (const auto dims :
       {std::initializer_list<uint64_t>{uint64_t{1} << 63}, {~uint64_t{0}, 2}, {1U << 31, 1U << 31}}) {
    refuse(tensor_entry(Bytes::gguf(1, 0), "t", dims, 0, 0), {"'t'", "dimension"});
  }
  Bytes strings = Bytes::gguf(0, 1);
  strings.string("s").u32(kArray).u32(kString).u64(~uint64_t{0}).zeros(64);
  refuse(strings, {"'s'"});
  Bytes numbers = Bytes::gguf(0, 1);
  numbers.string("s").u32(kArray).u32(kU64).u64(~uint64_t{0} / 4).zeros(64);
  refuse(numbers, {"'s'", "64 bytes left"});
}

TEST(Gguf, Case12TypesAndValues) {
  refuse(tensor_entry(Bytes::gguf(1, 0), "t", {4}, 999, 0), {"'t'", "type 999"});
  refuse(tensor_entry(Bytes::gguf(1, 0), "t", {4}, 4, 0), {"'t'", "type 4"});  // a number the format took back
  refuse(tensor_entry(Bytes::gguf(1, 0), "t", {256}, 29, 0), {"'t'", "IQ1_M"}, ErrorCode::unsupported);
  refuse(tensor_entry(Bytes::gguf(1, 0), "t", {48}, 8, 0), {"'t'", "Q8_0", "rows of 48", "multiple of 32"});
  refuse(tensor_entry(Bytes::gguf(1, 0), "", {4}, 0, 0).zeros(32), {"tensor 0", "empty name"});
  Bytes empty_key = Bytes::gguf(0, 1);
  refuse(empty_key.string("").u32(kU8).zeros(1).zeros(8), {"metadata key 0", "empty"});
  Bytes boolean = Bytes::gguf(0, 1);
  refuse(boolean.string("b").u32(kBool).number(uint8_t{7}), {"'b'", "value 7"});
  Bytes type = Bytes::gguf(0, 1);
  refuse(type.string("b").u32(13).zeros(8), {"'b'", "13"});
  Bytes key_with_newline = Bytes::gguf(0, 1);
  refuse(key_with_newline.string("a\nb\x1b").u32(13).zeros(8), {"'a\\x0ab\\x1b'"});
}

TEST(Gguf, Case12ArraysNestedTenThousandDeep) {
  Bytes bytes = Bytes::gguf(0, 1);
  bytes.string("n").u32(kArray);
  for (int i = 0; i < 10'000; ++i) bytes.u32(kArray).u64(1);
  refuse(bytes, {"'n'", "nested"});
  Bytes shallow = Bytes::gguf(0, 1);
  shallow.string("n").u32(kArray).u32(kArray).u64(2);
  for (int i = 0; i < 2; ++i) shallow.u32(kU8).u64(1).zeros(1);
  EXPECT_EQ(as_integers(*parse(shallow).find("n")), std::nullopt);  // well-formed, but no flat list
}

TEST(Gguf, DuplicatesOverlapsAndGaps) {
  Bytes keys = Bytes::gguf(0, 2);
  for (int i = 0; i < 2; ++i) keys.string("k").u32(kU8).zeros(1);
  refuse(keys, {"'k'", "twice"});
  const auto two = [](std::string_view second, uint64_t offset) {
    return tensor_entry(tensor_entry(Bytes::gguf(2, 0), "a", {16}, 0, 0), second, {16}, 0, offset).align(32).zeros(256);
  };
  EXPECT_EQ(parse(two("b", 64)).tensors().size(), 2U);
  refuse(two("a", 64), {"'a'", "twice"});
  refuse(two("b", 32), {"'b'", "offset 32", "overlap"});
  refuse(two("b", 96), {"'b'", "offset 96", "gap"});
  refuse(two("b", 65), {"'b'", "offset 65", "alignment 32"});
  refuse(two("b", ~uint64_t{31}), {"'b'", "gap"});
}

TEST(Gguf, TensorsMayComeInAnyOrder) {
  const Bytes bytes =
      tensor_entry(tensor_entry(Bytes::gguf(2, 0), "second", {8}, 0, 32), "first", {8}, 0, 0).align(32).zeros(64);
  const GgufHeader header = parse(bytes);
  EXPECT_EQ(header.find_tensor("second")->begin, header.find_tensor("first")->begin + 32);
}

TEST(Gguf, Case13EveryCutIsRefused) {
  const std::string whole = good_file().str();
  for (size_t length = 0; length < whole.size(); ++length) {
    Bytes cut;
    cut.raw(whole.substr(0, length));
    EXPECT_THROW(parse(cut), Error) << length;
  }
  Bytes by_one;
  by_one.raw(whole.substr(0, whole.size() - 1));
  refuse(by_one, {"file of " + std::to_string(whole.size() - 1), "at least " + std::to_string(whole.size()), "'b'"});
  EXPECT_NO_THROW(parse(good_file().zeros(1)));  // bytes after the last tensor are allowed
}

TEST(Gguf, OtherFiles) {
  refuse(Bytes().raw("PK\x03\x04").zeros(32), {"GGUF"});
  refuse(Bytes().raw("GGUF").u32(1).zeros(16), {"version 1"}, ErrorCode::unsupported);
  refuse(Bytes().raw("GGUF").u32(4).zeros(16), {"version 4"}, ErrorCode::unsupported);
  refuse(Bytes().raw("GGUF").u32(3U << 24).zeros(16), {"big-endian"}, ErrorCode::unsupported);
}

TEST(GgufFiles, KeysAndTensorsByName) {
  const TempFolder folder;
  const auto path = folder.write("m.gguf", good_file().str());
  const auto files = ModelFiles::open(path);
  EXPECT_EQ(files->architecture(), "llama");
  EXPECT_EQ(files->integer({"", "block_count"}), 2);
  EXPECT_EQ(files->text({"", "/general.architecture"}), "llama");
  EXPECT_EQ(files->integer({"num_hidden_layers", ""}), std::nullopt);
  EXPECT_EQ(files->require_integer({"", "block_count"}, 1, 2), 2);
  EXPECT_EQ(files->text_views({"", "/tokenizer.ggml.tokens"})->size(), 3U);
  const Tensor b = files->require_tensor({"", "b"}, {3});
  EXPECT_EQ(b.data<float>()[2], 10.0F);
  EXPECT_TRUE(files->find_tensor({"", "c"}).empty());
  files->release(b);
  EXPECT_EQ(b.data<float>()[2], 10.0F);
  const std::string name = path.string();
  expect_error(ErrorCode::bad_file, {name, "'llama.block_count' = 2", "3 to 9"}, [&] {
    files->require_integer({"", "block_count"}, 3, 9);
  });
  expect_error(ErrorCode::bad_file, {name, "'llama.block_count'", "u32", "a text"}, [&] {
    files->text({"", "block_count"});
  });
  expect_error(ErrorCode::bad_file, {name, "missing key 'llama.x'"}, [&] { files->require_real({"", "x"}); });
  expect_error(ErrorCode::bad_file, {name, "missing tensor 'blk.7.x'"}, [&] {
    files->require_tensor({"", "blk.{}.x"}, {1}, 7);
  });
  expect_error(ErrorCode::bad_file, {name, "'a'", "[2, 4]", "[4, 2]"}, [&] {
    files->require_tensor({"", "a"}, {4, 2});
  });
}

TEST(GgufFiles, AFileThatShrankIsAnError) {
  const TempFolder folder;
  const auto path = folder.write("m.gguf", good_file().str());
  const auto files = ModelFiles::open(path);
  std::filesystem::resize_file(path, 10);
  expect_error(ErrorCode::io, {path.string(), "shrank to 10"}, [&] { files->find_tensor({"", "a"}); });
  expect_error(ErrorCode::io, {path.string(), "shrank to 10"}, [&] { files->integer({"", "block_count"}); });
}

TEST(GgufFiles, WhatIsNoModelFile) {
  const TempFolder folder;
  expect_error(ErrorCode::not_found, {"absent"}, [&] { ModelFiles::open(folder.path() / "absent"); });
  expect_error(ErrorCode::bad_file, {"empty", "ends at byte 0"}, [&] { ModelFiles::open(folder.write("empty", "")); });
  expect_error(ErrorCode::io, {"/dev/null", "regular file"}, [&] { ModelFiles::open("/dev/null"); });
  expect_error(ErrorCode::bad_file, {"general.architecture"},
               [&] { ModelFiles::open(folder.write("bare", Bytes::gguf(0, 0).str())); });
}

}  // namespace
}  // namespace slipring
