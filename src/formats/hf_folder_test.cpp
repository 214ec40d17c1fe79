// Unit tests of Hugging Face folders: config keys, shard lists and path tricks (case 14).
#include <gtest/gtest.h>

#include "formats/model_files.h"
#include "formats/test_bytes.h"

namespace slipring {
namespace {

using testing::Bytes;
using testing::expect_error;
using testing::TempFolder;

std::string weights(std::string_view name) {
  return Bytes()
      .string("{\"" + std::string(name) + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})")
      .number(1.0F)
      .str();
}

// A folder with two shards, "a" in the first and "b" in the second.
struct Sharded {
  Sharded() {
    folder.write("config.json", R"({"model_type":"llama"})");
    folder.write("model-00001-of-00002.safetensors", weights("a"));
    folder.write("model-00002-of-00002.safetensors", weights("b"));
    index(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})");
  }
  void index(const std::string& map) const {
    folder.write("model.safetensors.index.json", R"({"metadata":{},"weight_map":)" + map + "}");
  }
  void refuse(ErrorCode code, std::initializer_list<std::string_view> parts) const {
    expect_error(code, parts, [&] { ModelFiles::open(folder.path()); });
  }
  TempFolder folder;
};

TEST(HfFolder, ConfigKeys) {
  const TempFolder folder;
  folder.write("config.json", R"({"model_type":"outer","tie_word_embeddings":true,"hidden_size":1,
    "text_config":{"model_type":"inner","hidden_size":64,"rope":{"sliding":{"theta":1e4}},"none":null,
    "layer_types":["a","b"],"flags":[true,false],"scalar":3,"big":18446744073709551615}})");
  folder.write("model.safetensors", weights("model.language_model.norm.weight"));
  const auto files = ModelFiles::open(folder.path());
  EXPECT_FALSE(files->is_gguf());
  EXPECT_EQ(files->architecture(), "outer");
  EXPECT_EQ(files->integer({"hidden_size", ""}), 64);
  EXPECT_EQ(files->integer({"/hidden_size", ""}), 1);
  EXPECT_EQ(files->boolean({"tie_word_embeddings", ""}), true);
  EXPECT_EQ(files->real({"rope/sliding/theta", ""}), 1e4);
  EXPECT_EQ(files->real({"rope/full/theta", ""}), std::nullopt);
  EXPECT_EQ(files->real({"hidden_size", ""}), 64.0);
  EXPECT_EQ(files->integer({"none", ""}), std::nullopt);
  EXPECT_EQ(files->texts({"layer_types", ""}), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(files->integers({"flags", ""}), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(files->integers({"scalar", ""}), (std::vector<int64_t>{3}));
  EXPECT_EQ(files->text({"", "general.name"}), std::nullopt);
  EXPECT_EQ(files->require_tensor({"model.norm.weight", ""}, {1}).data<float>()[0], 1.0F);
  expect_error(ErrorCode::bad_file, {"config.json", "'big'", "18446744073709551615"}, [&] {
    files->integer({"big", ""});
  });
  expect_error(ErrorCode::bad_file, {"config.json", "'layer_types'", "array"}, [&] {
    files->integer({"layer_types", ""});
  });
  expect_error(ErrorCode::bad_file, {"config.json", "'rope/sliding/theta'"}, [&] {
    files->integer({"rope/sliding/theta", ""});
  });
}

TEST(HfFolder, Shards) {
  const Sharded sharded;
  const auto files = ModelFiles::open(sharded.folder.path());
  EXPECT_EQ(files->tensor_names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(files->find_tensor({"b", ""}).empty());
}

TEST(HfFolder, Case14ShardNamesAreFileNames) {
  const Sharded sharded;
  for (const std::string_view name : {"../x.safetensors", "/etc/passwd", "sub/x.safetensors", "..", ""}) {
    sharded.index(R"({"a":")" + std::string(name) + "\"}");
    sharded.refuse(ErrorCode::bad_file, {"index.json", "'" + std::string(name) + "'", "plain file name"});
  }
  sharded.index(R"({"a":7})");
  sharded.refuse(ErrorCode::bad_file, {"tensor 'a'"});
  sharded.index("{}");
  sharded.refuse(ErrorCode::bad_file, {"empty"});
  sharded.index(R"({"a":"x","a":"y"})");
  sharded.refuse(ErrorCode::bad_file, {"'a' twice"});
}

TEST(HfFolder, Case14ListAndShardsAgreeBothWays) {
  const std::string first = "model-00001-of-00002.safetensors";
  const std::string second = "model-00002-of-00002.safetensors";
  {
    const Sharded sharded;
    std::filesystem::remove(sharded.folder.path() / second);
    sharded.refuse(ErrorCode::not_found, {second});
  }
  {
    const Sharded sharded;
    sharded.folder.write("model-00003-of-00003.safetensors", weights("c"));
    sharded.refuse(ErrorCode::mismatch, {"model-00003-of-00003.safetensors"});
  }
  {
    const Sharded sharded;
    sharded.index(R"({"a":")" + first + R"(","b":")" + second + R"(","c":")" + second + "\"}");
    sharded.refuse(ErrorCode::mismatch, {second, "'c'"});
  }
  {
    const Sharded sharded;
    sharded.folder.write(second, weights("other"));
    sharded.refuse(ErrorCode::mismatch, {second, "'other'"});
  }
  {
    const Sharded sharded;
    sharded.index(R"({"a":")" + second + R"(","b":")" + first + "\"}");
    sharded.refuse(ErrorCode::mismatch, {first, "'a'"});
  }
  {
    const Sharded sharded;
    sharded.folder.write("model.safetensors", weights("a"));
    sharded.refuse(ErrorCode::mismatch, {"model.safetensors", "stale"});
  }
}

TEST(HfFolder, WhatIsMissing) {
  const TempFolder folder;
  const auto refuse = [&](ErrorCode code, std::initializer_list<std::string_view> parts) {
    expect_error(code, parts, [&] { ModelFiles::open(folder.path()); });
  };
  refuse(ErrorCode::not_found, {"config.json"});
  folder.write("config.json", "[]");
  refuse(ErrorCode::bad_file, {"config.json"});
  folder.write("config.json", "{}");
  refuse(ErrorCode::bad_file, {"model_type"});
  folder.write("config.json", R"({"model_type":"llama"})");
  refuse(ErrorCode::not_found, {"model.safetensors"});
  folder.write("model.safetensors", weights("a"));
  EXPECT_NO_THROW(ModelFiles::open(folder.path()));
  expect_error(ErrorCode::invalid_argument, {"folder"}, [&] { ModelFiles::open(folder.path() / "model.safetensors"); });
  folder.write("config.json", R"({"model_type":"llama",)");
  refuse(ErrorCode::bad_file, {"config.json", "malformed JSON near byte"});
}

}  // namespace
}  // namespace slipring
