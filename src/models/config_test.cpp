// Unit tests: which layers slide and how far, by what the config says and by what it leaves out.
#include <gtest/gtest.h>

#include "formats/test_bytes.h"
#include "models/decoder.h"

namespace slipring {
namespace {

using testing::Bytes;
using testing::expect_error;
using testing::TempFolder;

constexpr int kContext = 256;

// A folder whose config.json has what every family needs and `more`; without any tensor of the model.
struct Folder {
  Folder(const std::string& family, int layers, const std::string& more) {
    files.write(
        "config.json",
        R"({"model_type":")" + family + R"(","num_hidden_layers":)" + std::to_string(layers) +
            R"(,"hidden_size":8,"intermediate_size":8,"num_attention_heads":2,"num_key_value_heads":2,"head_dim":4,)" +
            R"("vocab_size":16,"max_position_embeddings":)" + std::to_string(kContext) + more + "}");
    files.write("model.safetensors",
                Bytes().string(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})").number(1.0F).str());
  }
  ModelSpec spec() const { return read_model_spec(*ModelFiles::open(files.path())); }
  TempFolder files;
};

ModelSpec spec_of(const std::string& family, int layers, const std::string& more) {
  return Folder(family, layers, more).spec();
}

// "SSF": one letter a layer.
std::string kinds(const ModelSpec& spec) {
  std::string text;
  for (const LayerSpec& layer : spec.layers) text += layer.kind == LayerKind::sliding ? 'S' : 'F';
  return text;
}

const std::string kWindow = R"(,"sliding_window":8)";

TEST(LayerPatterns, FamiliesWithoutAListFollowTheirOwn) {
  const struct {
    const char* family;
    const char* eight;  // of eight layers; shorter models have its beginning
  } cases[] = {{"gemma2", "SFSFSFSF"}, {"gpt_oss", "SFSFSFSF"},      {"cohere2", "SSSFSSSF"}, {"olmo3", "SSSFSSSF"},
               {"gemma3", "SSSSSFSS"}, {"muse_glimmer", "SSSFSSSF"}, {"phi3", "SSSSSSSS"},    {"mistral", "SSSSSSSS"}};
  for (const auto& c : cases) {
    for (int layers = 2; layers <= 8; ++layers) {
      const ModelSpec spec = spec_of(c.family, layers, kWindow);
      EXPECT_EQ(kinds(spec), std::string(c.eight, static_cast<size_t>(layers))) << c.family;
      for (const LayerSpec& layer : spec.layers) {
        EXPECT_EQ(layer.window, layer.kind == LayerKind::sliding ? 8 : 0) << c.family;
      }
    }
  }
}

TEST(LayerPatterns, AListBeatsAPeriodAndAPeriodBeatsTheDefault) {
  EXPECT_EQ(kinds(spec_of("gemma2", 3, kWindow + R"(,"sliding_window_pattern":3)")), "SSF");
  EXPECT_EQ(kinds(spec_of("gemma2", 3, kWindow + R"(,"sliding_window_pattern":1)")), "FFF");
  EXPECT_EQ(kinds(spec_of("cohere2", 3,
                          kWindow + R"(,"sliding_window_pattern":3,"layer_types":["full_attention",)"
                                    R"("sliding_attention","full_attention"])")),
            "FSF");
}

TEST(LayerPatterns, ADefaultIsToldAndAListIsNot) {
  const auto notices = [](const std::string& more) { return spec_of("gemma2", 2, kWindow + more).notices; };
  ASSERT_EQ(notices("").size(), 1U);
  EXPECT_NE(notices("").front().find("i % 2 == 1"), std::string::npos);
  EXPECT_TRUE(notices(R"(,"layer_types":["full_attention","sliding_attention"])").empty());
}

TEST(LayerPatterns, OddValuesAreRefused) {
  const auto refuse = [](const std::string& more, std::initializer_list<std::string_view> parts) {
    expect_error(ErrorCode::bad_file, parts, [&] { spec_of("gemma2", 4, more); });
  };
  refuse(kWindow + R"(,"sliding_window_pattern":0)", {"sliding_window_pattern", "0"});
  refuse(kWindow + R"(,"sliding_window_pattern":-1)", {"sliding_window_pattern", "-1"});
  refuse(kWindow + R"(,"layer_types":["full_attention"])", {"layer_types", "4 entries", "1"});
  refuse(kWindow + R"(,"layer_types":["a","a","a","a"])", {"layer_types", "\"a\""});
  refuse(R"(,"sliding_window":0)", {"sliding_window", "0"});
  refuse(R"(,"sliding_window":-8)", {"sliding_window", "-8"});
}

TEST(Windows, BeyondTheContextIsTheContextWithANotice) {
  const ModelSpec spec = spec_of("gemma2", 2, R"(,"sliding_window":257)");
  EXPECT_EQ(spec.layers[0].window, kContext);
  ASSERT_EQ(spec.notices.size(), 2U);
  EXPECT_NE(spec.notices[1].find("257"), std::string::npos);
  EXPECT_EQ(spec_of("gemma2", 2, R"(,"sliding_window":256)").notices.size(), 1U);
}

TEST(Windows, FamiliesWhereNoWindowMeansNone) {
  for (const char* family : {"phi3", "mistral", "olmo2"}) {
    EXPECT_EQ(kinds(spec_of(family, 3, "")), "FFF") << family;
    EXPECT_EQ(kinds(spec_of(family, 3, R"(,"sliding_window":null)")), "FFF") << family;
  }
  EXPECT_EQ(kinds(spec_of("phi3", 3, R"(,"sliding_window":262144)")), "FFF");  // nothing is hidden
}

TEST(Windows, ADefaultWindowIsTold) {
  const ModelSpec spec = spec_of("gpt_oss", 2, "");
  EXPECT_EQ(spec.layers[0].window, 128);
  ASSERT_EQ(spec.notices.size(), 2U);
  EXPECT_NE(spec.notices[1].find("using 128"), std::string::npos);
}

TEST(RopeKinds, OnlySlidingLayersOfCohere2Rotate) {
  const ModelSpec spec = spec_of("cohere2", 4, kWindow + R"(,"rope_theta":50000)");
  EXPECT_EQ(spec.layers[0].rope_theta, 50000.0);
  EXPECT_EQ(spec.layers[3].rope_theta, 0.0);
}

TEST(RopeKinds, LongRopeEndsWhereItsShortFactorsDo) {
  const std::string longrope = R"(,"original_max_position_embeddings":32,"rope_scaling":{"type":"longrope"})";
  const ModelSpec spec = spec_of("phi3", 2, longrope);
  EXPECT_EQ(spec.context_length, 32);
  ASSERT_EQ(spec.notices.size(), 1U);
  EXPECT_NE(spec.notices[0].find("32 of 256"), std::string::npos);
  expect_error(ErrorCode::bad_file, {"original_max_position_embeddings"},
               [] { spec_of("phi3", 2, R"(,"rope_scaling":{"type":"su"})"); });
}

}  // namespace
}  // namespace slipring
