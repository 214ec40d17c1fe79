// Facts that a model could be loaded without, and would then compute something else in silence: each is refused by
// name.
#include <cmath>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <slipring/error.h>
#include <slipring/model.h>

#include "fixtures.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/mapped_file.h"
#include "formats/safetensors_writer.h"
#include "formats/test_bytes.h"

namespace slipring::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct ConfigFact {
  const char* folder;
  const char* patch;  // merged into config.json
  ErrorCode code;
  const char* named;
};

class OddFact : public ::testing::TestWithParam<ConfigFact> {};

TEST_P(OddFact, IsRefusedByName) {
  const fs::path source = fs::path(SLIPRING_SOURCE_DIR) / "tests/data" / GetParam().folder;
  json config;
  std::ifstream(source / "config.json") >> config;
  const TempFolder folder;
  fs::create_symlink(source / "model.safetensors", folder.path() / "model.safetensors");
  folder.write("config.json", config.dump());
  ASSERT_NO_THROW(Model::load(folder.path(), {.threads = 1}));
  (config.contains("text_config") ? config["text_config"] : config).merge_patch(json::parse(GetParam().patch));
  folder.write("config.json", config.dump());
  expect_error(GetParam().code, {GetParam().named}, [&] { Model::load(folder.path(), {.threads = 1}); });
}

constexpr auto kBad = ErrorCode::bad_file;
constexpr auto kOther = ErrorCode::unsupported;
INSTANTIATE_TEST_SUITE_P(
    Configs, OddFact,
    ::testing::Values(
        ConfigFact{"mistral", R"({"hidden_act": "relu"})", kOther, "hidden_act"},
        ConfigFact{"mistral", R"({"attention_bias": true})", kBad, "attention_bias"},
        ConfigFact{"mistral", R"({"mlp_bias": true})", kBad, "mlp_bias"},
        ConfigFact{"mistral", R"({"num_hidden_layers": 2})", kBad, "layers.2."},
        ConfigFact{"mistral", R"({"vocab_size": 99999})", kBad, "vocab_size"},
        ConfigFact{"mistral", R"({"vocab_size": "x"})", kBad, "vocab_size"},
        ConfigFact{"mistral", R"({"rms_norm_eps": 1e308})", kBad, "rms_norm_eps"},
        ConfigFact{"mistral", R"({"rms_norm_eps": 1e-300})", kBad, "rms_norm_eps"},
        ConfigFact{"mistral", R"({"rope_parameters": "x"})", kBad, "rope_parameters"},
        ConfigFact{"cohere2", R"({"tie_word_embeddings": false})", kBad, "tie_word_embeddings"},
        ConfigFact{"cohere2", R"({"hidden_act": "gelu"})", kOther, "hidden_act"},
        ConfigFact{"cohere2", R"({"logit_scale": 0})", kBad, "logit_scale"},
        ConfigFact{"cohere2", R"({"logit_scale": -1})", kBad, "logit_scale"},
        ConfigFact{"cohere2", R"({"logit_scale": 1e308})", kBad, "logit_scale"},
        ConfigFact{"cohere2", R"({"layer_norm_eps": -1})", kBad, "layer_norm_eps"},
        ConfigFact{"gemma2", R"({"final_logit_softcapping": -1})", kBad, "final_logit_softcapping"},
        ConfigFact{"gemma2", R"({"attn_logit_softcapping": 1e308})", kBad, "attn_logit_softcapping"},
        ConfigFact{"gemma3", R"({"hidden_activation": "relu"})", kOther, "hidden_activation"},
        ConfigFact{"glimmer-tiny", R"({"hidden_activation": "relu"})", kOther, "hidden_activation"},
        ConfigFact{"glimmer-tiny", R"({"output_multiplier": 0})", kBad, "output_multiplier"},
        ConfigFact{"glimmer-tiny", R"({"output_multiplier": 1e308})", kBad, "output_multiplier"},
        ConfigFact{"glimmer-tiny", R"({"post_norm_eps": -1})", kBad, "post_norm_eps"},
        ConfigFact{"glimmer-tiny", R"({"layer_rope_theta": [1, 2]})", kBad, "layer_rope_theta"},
        ConfigFact{"glimmer-tiny", R"({"layer_rope_theta": [-1, -1, -1, -1]})", kBad, "layer_rope_theta"},
        ConfigFact{"glimmer-tiny", R"({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}})", kOther, "yarn"},
        ConfigFact{"gpt-oss", R"({"rope_parameters": {"attention_factor": -1.0}})", kBad, "attention_factor"},
        ConfigFact{"gpt-oss", R"({"rope_parameters": {"attention_factor": 1e308}})", kBad, "attention_factor"}),
    [](const ::testing::TestParamInfo<ConfigFact>& parameter) {
      return test_name(std::string(parameter.param.folder) + "_" + parameter.param.named + "_" +
                       std::to_string(parameter.index));
    });

// A GGUF fixture with keys and tensors added or replaced.
class OddGgufFact : public ::testing::Test {
 protected:
  using Tensors = std::vector<std::pair<std::string, Tensor>>;
  void refuse(const char* named, const std::string& key, uint32_t value, const Tensors& more,
              ErrorCode code = ErrorCode::bad_file) {
    const fs::path source = fs::path(SLIPRING_SOURCE_DIR) / "tests/data" / "gguf/mistral-f32.gguf";
    const auto file = MappedFile::open(source);
    const GgufHeader header = GgufHeader::parse(file->bytes(), source.string());
    const fs::path path = folder_.path() / "odd.gguf";
    GgufWriter writer(path);
    for (const GgufHeader::Entry& entry : header.entries()) {
      if (entry.key != key) writer.copy(entry.key, entry.value);
    }
    if (!key.empty()) writer.set_u32(key, value);
    Tensors all = more;
    for (const GgufTensor& t : header.tensors()) {
      const bool replaced = std::any_of(more.begin(), more.end(), [&](const auto& m) { return m.first == t.name; });
      if (replaced) continue;
      all.emplace_back(t.name, Tensor::view(t.dtype, t.shape, file->bytes().data() + t.begin, file));
    }
    for (const auto& [name, tensor] : all) writer.declare(name, tensor.dtype(), tensor.shape());
    for (const auto& [name, tensor] : all) writer.append(name, tensor);
    writer.finish();
    if (named == nullptr) {
      EXPECT_NO_THROW(Model::load(path, {.threads = 1}));
    } else {
      expect_error(code, {"odd.gguf", named}, [&] { Model::load(path, {.threads = 1}); });
    }
  }
  static Tensor floats(int64_t count, float value) {
    return Tensor::from(std::vector<float>(static_cast<size_t>(count), value), {count});
  }
  TempFolder folder_;
};

TEST_F(OddGgufFact, LayersBeyondTheCount) {
  refuse("blk.1.", "llama.block_count", 1, {});
}

TEST_F(OddGgufFact, ABiasThatNoLayerTakes) {
  refuse("blk.0.attn_norm.bias", {}, 0, {{"blk.0.attn_norm.bias", floats(64, 1.0F)}});
}

TEST_F(OddGgufFact, ValuesOfAnotherWidth) {
  refuse("llama.attention.value_length", "llama.attention.value_length", 8, {});
}

TEST_F(OddGgufFact, RopeFactorsThatAreNone) {
  refuse(nullptr, {}, 0, {{"rope_freqs.weight", floats(8, 1.0F)}});
  refuse("rope_freqs.weight", {}, 0, {{"rope_freqs.weight", floats(7, 1.0F)}});
  refuse("rope_freqs.weight", {}, 0, {{"rope_freqs.weight", Tensor(DType::F16, {8})}});
  for (const float bad : {0.0F, -1.0F, NAN, INFINITY}) {
    refuse("rope_freqs.weight", {}, 0, {{"rope_freqs.weight", floats(8, bad)}});
  }
}

TEST_F(OddGgufFact, NormsThatAreNotFinite) {
  for (const float bad : {NAN, INFINITY})
    refuse("blk.0.attn_norm", {}, 0, {{"blk.0.attn_norm.weight", floats(64, bad)}});
}

TEST_F(OddGgufFact, AMatrixOfNumbersThatAreNoWeights) {
  refuse("blk.0.attn_q.weight", {}, 0, {{"blk.0.attn_q.weight", Tensor(DType::I32, {64, 64})}}, ErrorCode::unsupported);
}

}  // namespace
}  // namespace slipring::testing
