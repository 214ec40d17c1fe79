// Forms of the families that the fixture folders do not show: scaled positions, other spellings of the same weights,
// MXFP4.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <slipring/error.h>
#include <slipring/session.h>

#include "fixtures.h"
#include "formats/codec.h"
#include "formats/gguf_writer.h"
#include "formats/model_files.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "formats/test_bytes.h"

namespace slipring::testing {
namespace {

namespace fs = std::filesystem;

std::vector<float> logits_of(const std::shared_ptr<const Model>& model, std::span<const TokenId> ids, int64_t chunk) {
  Session session(model, {.kv_dtype = DType::F32, .context = 0, .chunk = chunk, .threads = 2});
  std::vector<float> all;
  session.score(ids, [&](int64_t, std::span<const float> row) { all.insert(all.end(), row.begin(), row.end()); });
  return all;
}

double worst(const std::vector<float>& ours, const Tensor& expected) {
  EXPECT_EQ(ours.size(), static_cast<size_t>(expected.elements()));
  double largest = 0.0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double difference = std::abs(ours[i] - static_cast<double>(expected.data<float>()[i]));
    largest = std::max(largest, std::isnan(difference) ? 1e30 : difference);
  }
  return largest;
}

class LongRope : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const fs::path data = root_with({"rope", "phi3", "gemma3", "olmo3"});
    fs::copy_file(data / "rope" / (std::string(GetParam()) + ".json"), folder_.path() / "config.json");
    fs::create_symlink(data / "phi3/model.safetensors", folder_.path() / "model.safetensors");
    expected_ = std::make_unique<TensorFile>(data / "rope" / (std::string(GetParam()) + ".safetensors"));
    ids_ = expected_->ids("input_ids");
  }
  std::shared_ptr<const Model> load(int64_t context) const { return Model::load(folder_.path(), {.context = context}); }

  TempFolder folder_;
  std::unique_ptr<TensorFile> expected_;
  std::vector<TokenId> ids_;
};

constexpr int64_t kOriginalContext = 32;

TEST_P(LongRope, ShortFactorsUpToTheOriginalContextAndLongOnesBeyondIt) {
  ASSERT_GT(ids_.size(), static_cast<size_t>(kOriginalContext));
  const std::span<const TokenId> first(ids_.data(), kOriginalContext);
  for (const int64_t context : {int64_t{0}, kOriginalContext}) {
    const auto model = load(context);
    EXPECT_EQ(model->spec().context_length, kOriginalContext);
    EXPECT_LT(worst(logits_of(model, first, 7), (*expected_)["short"]), 1e-4) << context;
  }
  const auto model = load(kOriginalContext + 1);
  EXPECT_EQ(model->spec().context_length, 256);
  const auto whole = logits_of(model, ids_, 33);
  EXPECT_LT(worst(whole, (*expected_)["long"]), 1e-4);
  for (const int64_t chunk : {1, 5, 512}) EXPECT_TRUE(logits_of(model, ids_, chunk) == whole) << chunk;
}

TEST_P(LongRope, TheTwoSetsAreTwoModels) {
  EXPECT_NE(load(0)->identity(), load(200)->identity());
  Session session(load(0), {.kv_dtype = DType::F32, .context = 0, .chunk = 8, .threads = 1});
  EXPECT_THROW(session.prefill(ids_), Error);  // beyond the short factors' context
}

INSTANTIATE_TEST_SUITE_P(Parity, LongRope, ::testing::Values("longrope", "longrope_partial"),
                         [](const ::testing::TestParamInfo<const char*>& parameter) {
                           return std::string(parameter.param);
                         });

// Full layers scaled and sliding ones not, as Gemma 3 from 4B up and OLMo 3 have it, in the form that config.json has
// today and in the one that those models were published with.
struct ScaledCase {
  const char* name;
  const char* weights;
  const char* older;  ///< replaces rope_parameters
};

class ScaledFullLayers : public ::testing::TestWithParam<ScaledCase> {};

TEST_P(ScaledFullLayers, LogitsAreTheReferenceInEitherFormOfTheConfig) {
  const fs::path data = root_with({"rope", "phi3", "gemma3", "olmo3"});
  const TensorFile expected(data / "rope" / (std::string(GetParam().name) + ".safetensors"));
  const auto ids = expected.ids("input_ids");
  nlohmann::json config;
  std::ifstream(data / "rope" / (std::string(GetParam().name) + ".json")) >> config;
  const TempFolder folder;
  fs::create_symlink(data / GetParam().weights / "model.safetensors", folder.path() / "model.safetensors");
  folder.write("config.json", config.dump());
  const auto whole = logits_of(Model::load(folder.path()), ids, 16);
  EXPECT_LT(worst(whole, expected["logits"]), 1e-4);
  config.erase("rope_parameters");
  config.update(nlohmann::json::parse(GetParam().older));
  folder.write("config.json", config.dump());
  EXPECT_TRUE(logits_of(Model::load(folder.path()), ids, 5) == whole);
}

INSTANTIATE_TEST_SUITE_P(
    Parity, ScaledFullLayers,
    ::testing::Values(ScaledCase{"gemma3_linear", "gemma3",
                                 R"({"rope_theta":1000000.0,"rope_local_base_freq":10000.0,
                                     "rope_scaling":{"rope_type":"linear","factor":8.0}})"},
                      ScaledCase{"olmo3_yarn", "olmo3",
                                 R"({"rope_theta":500000.0,"rope_scaling":{"rope_type":"yarn","factor":8.0,
                                     "original_max_position_embeddings":64,"beta_fast":32.0,"beta_slow":1.0,
                                     "attention_factor":1.2079441541679836}})"}),
    [](const ::testing::TestParamInfo<ScaledCase>& parameter) { return std::string(parameter.param.name); });

// The phi3 fixture as GGUF: with q, k and v in one matrix and gate and up in another, as published, or each on its own.
void write_phi3_gguf(const fs::path& path, bool fused) {
  const TensorFile source(root_with({"phi3"}) / "phi3/model.safetensors");
  constexpr int64_t kLayers = 7;
  constexpr int64_t kHidden = 64;
  constexpr int64_t kInner = 96;
  std::vector<std::pair<std::string, Tensor>> tensors{{"token_embd.weight", source["model.embed_tokens.weight"]},
                                                      {"output.weight", source["lm_head.weight"]},
                                                      {"output_norm.weight", source["model.norm.weight"]}};
  const auto rows = [](const Tensor& matrix, int64_t first, int64_t count) {
    return Tensor::view(DType::F32, {count, kHidden}, matrix.data<float>() + first * kHidden);
  };
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string from = "model.layers." + std::to_string(i) + ".";
    const std::string to = "blk." + std::to_string(i) + ".";
    const auto add = [&](const char* name, const Tensor& tensor) { tensors.emplace_back(to + name, tensor); };
    add("attn_norm.weight", source[from + "input_layernorm.weight"]);
    add("ffn_norm.weight", source[from + "post_attention_layernorm.weight"]);
    add("attn_output.weight", source[from + "self_attn.o_proj.weight"]);
    add("ffn_down.weight", source[from + "mlp.down_proj.weight"]);
    const Tensor& qkv = source[from + "self_attn.qkv_proj.weight"];
    const Tensor& gate_up = source[from + "mlp.gate_up_proj.weight"];
    if (fused) {
      add("attn_qkv.weight", qkv);
      add("ffn_up.weight", gate_up);
    } else {
      add("attn_q.weight", rows(qkv, 0, 64));
      add("attn_k.weight", rows(qkv, 64, 32));
      add("attn_v.weight", rows(qkv, 96, 32));
      add("ffn_gate.weight", rows(gate_up, 0, kInner));
      add("ffn_up.weight", rows(gate_up, kInner, kInner));
    }
  }
  GgufWriter writer(path);
  writer.set_text("general.architecture", "phi3");
  for (const auto& [key, value] : {std::pair{"context_length", 2048U},
                                   {"embedding_length", 64U},
                                   {"block_count", 7U},
                                   {"feed_forward_length", 96U},
                                   {"attention.head_count", 4U},
                                   {"attention.head_count_kv", 2U},
                                   {"attention.sliding_window", 12U},
                                   {"rope.dimension_count", 16U}}) {
    writer.set_u32(std::string("phi3.") + key, value);
  }
  writer.set_f32("phi3.attention.layer_norm_rms_epsilon", 1e-5F);
  writer.set_f32("phi3.rope.freq_base", 10000.0F);
  for (const auto& [name, tensor] : tensors) writer.declare(name, tensor.dtype(), tensor.shape());
  for (const auto& [name, tensor] : tensors) writer.append(name, tensor);
  writer.finish();
}

TEST(Phi3Gguf, FusedAndSplitProjectionsAreTheSameModel) {
  const TensorFile expected(root_with({"phi3"}) / "phi3/case.safetensors");
  const auto ids = expected.ids("input_ids");
  std::vector<float> both[2];
  for (const bool fused : {true, false}) {
    const TempFolder folder;
    write_phi3_gguf(folder.path() / "m.gguf", fused);
    both[fused ? 1 : 0] = logits_of(Model::load(folder.path() / "m.gguf"), ids, 16);
    EXPECT_LT(worst(both[fused ? 1 : 0], expected["logits"]), 1e-4) << fused;
  }
  EXPECT_TRUE(both[0] == both[1]);
}

// Experts in MXFP4, as published folders and GGUF files hold them. The reference multiplies the same weights by exact
// activations; ours are rounded to 8 bits, which is all of the difference: see Mxfp4Weights below.
class Mxfp4 : public ::testing::TestWithParam<const char*> {};

TEST_P(Mxfp4, LogitsAreTheReferenceAndTheBitsDoNotDependOnTheChunk) {
  const fs::path folder = root_with({"gpt-oss-mxfp4"}) / "gpt-oss-mxfp4";
  const auto model = Model::load(folder / GetParam());
  const TensorFile expected(folder / "mxfp4_case.safetensors");
  const auto ids = expected.ids("input_ids");
  const auto whole = logits_of(model, ids, 512);
  const double difference = worst(whole, expected["logits"]);
  RecordProperty("worst_difference", std::to_string(difference));
  EXPECT_LT(difference, 0.3);
  for (const int64_t chunk : {1, 7}) EXPECT_TRUE(logits_of(model, ids, chunk) == whole) << chunk;
}

INSTANTIATE_TEST_SUITE_P(Parity, Mxfp4, ::testing::Values("", "gpt-oss-mxfp4.gguf"),
                         [](const ::testing::TestParamInfo<const char*>& parameter) {
                           return std::string(*parameter.param == 0 ? "folder" : "gguf");
                         });

/// The experts' matrices of one layer as the folder has them in float32: [experts, in, out], `step` names sharing a
/// row.
Tensor fused(const ModelFiles& gguf, int64_t layer, const std::vector<const char*>& names) {
  Tensor result;
  const auto step = static_cast<int64_t>(names.size());
  for (int64_t first = 0; first < step; ++first) {
    const Tensor blocks = gguf.find_tensor({{}, names[static_cast<size_t>(first)]}, layer);
    EXPECT_EQ(blocks.dtype(), DType::MXFP4);
    const int64_t experts = blocks.shape()[0];
    const int64_t rows = blocks.shape()[1];
    const int64_t cols = blocks.shape()[2];
    if (result.empty()) result = Tensor(DType::F32, {experts, cols, rows * step});
    std::vector<float> decoded(static_cast<size_t>(blocks.elements()));
    dequantise(DType::MXFP4, blocks.raw(), blocks.elements(), decoded.data());
    for (int64_t e = 0; e < experts; ++e) {
      for (int64_t j = 0; j < rows; ++j) {
        for (int64_t i = 0; i < cols; ++i) {
          result.data<float>()[(e * cols + i) * rows * step + j * step + first] =
              decoded[static_cast<size_t>((e * rows + j) * cols + i)];
        }
      }
    }
  }
  return result;
}

const std::vector<const char*> kGateUp{"blk.{}.ffn_gate_exps.weight", "blk.{}.ffn_up_exps.weight"};
const std::vector<const char*> kDown{"blk.{}.ffn_down_exps.weight"};

// The GGUF file's tensors decode to what the gguf package says, the folder's blocks are the same numbers, and the model
// with these numbers in float32 is the reference.
TEST(Mxfp4Weights, AreTheReferencesFromEitherFormat) {
  const fs::path folder = root_with({"gpt-oss-mxfp4"}) / "gpt-oss-mxfp4";
  const TensorFile expected(folder / "mxfp4_case.safetensors");
  const auto gguf = ModelFiles::open(folder / "gpt-oss-mxfp4.gguf");
  for (const auto& [name, parts] : {std::pair("gate_up_proj", kGateUp), {"down_proj", kDown}}) {
    const Tensor decoded = fused(*gguf, 1, parts);
    const Tensor& reference = expected[name];
    ASSERT_EQ(decoded.shape(), reference.shape());
    EXPECT_TRUE(std::equal(decoded.data<float>(), decoded.data<float>() + decoded.elements(), reference.data<float>()));
  }
  const auto ids = expected.ids("input_ids");
  EXPECT_TRUE(logits_of(Model::load(folder), ids, 9) == logits_of(Model::load(gguf->path()), ids, 9));

  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto file = SafetensorsFile::open(folder / "model.safetensors");
  for (const auto& entry : file->entries()) {
    if (!entry.name.ends_with("_blocks") && !entry.name.ends_with("_scales")) {
      tensors.emplace_back(entry.name, file->tensor(entry.name));
    }
  }
  for (int64_t layer = 0; layer < 4; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    tensors.emplace_back(prefix + "gate_up_proj", fused(*gguf, layer, kGateUp));
    tensors.emplace_back(prefix + "down_proj", fused(*gguf, layer, kDown));
  }
  const TempFolder floats;
  fs::copy_file(folder / "config.json", floats.path() / "config.json");
  write_safetensors(floats.path() / "model.safetensors", tensors);
  EXPECT_LT(worst(logits_of(Model::load(floats.path()), ids, 9), expected["logits"]), 1e-4);
}

}  // namespace
}  // namespace slipring::testing
