// Unit tests of the quantiser: which type each tensor gets, and that the file is whole, readable and right.
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <random>

#include "formats/codec.h"
#include "formats/gguf_writer.h"
#include "formats/mapped_file.h"
#include "formats/model_files.h"
#include "formats/quantise_model.h"
#include "formats/test_bytes.h"

namespace slipring {
namespace {

using testing::expect_error;
using testing::TempFolder;

constexpr const char* kF32Model = SLIPRING_SOURCE_DIR "/tests/data/gguf/muse-glimmer-f32.gguf";

DType type_of(const std::vector<TensorChoice>& choices, std::string_view name) {
  for (const TensorChoice& choice : choices) {
    if (choice.name == name) return choice.to;
  }
  ADD_FAILURE() << "no tensor " << name;
  return DType::Bool;
}

std::vector<TensorFacts> llama_like(int layers, int64_t cols) {
  std::vector<TensorFacts> tensors = {{"token_embd.weight", DType::F16, {1000, cols}},
                                      {"output_norm.weight", DType::F32, {cols}}};
  for (int layer = 0; layer < layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    for (const char* name : {"attn_q", "attn_v", "ffn_down", "ffn_gate_inp"}) {
      tensors.push_back({prefix + name + ".weight", DType::F16, {512, cols}});
    }
    tensors.push_back({prefix + "attn_q.bias", DType::F16, {512}});
  }
  return tensors;
}

TEST(QuantisePlan, MediumMixGivesSomeLayersMore) {
  const auto choices = plan_quantisation(find_mix("q4_k_m"), llama_like(16, 512), 16);
  EXPECT_EQ(type_of(choices, "token_embd.weight"), DType::Q6_K);  // tied: it makes the logits
  EXPECT_EQ(type_of(choices, "output_norm.weight"), DType::F32);
  EXPECT_EQ(type_of(choices, "blk.0.attn_q.weight"), DType::Q4_K);
  EXPECT_EQ(type_of(choices, "blk.0.attn_q.bias"), DType::F32);
  EXPECT_EQ(type_of(choices, "blk.0.ffn_gate_inp.weight"), DType::F32);
  std::string more;
  for (int layer = 0; layer < 16; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const DType value = type_of(choices, prefix + "attn_v.weight");
    EXPECT_EQ(value, type_of(choices, prefix + "ffn_down.weight"));
    more += value == DType::Q6_K ? '6' : '4';
  }
  EXPECT_EQ(more, "6644644644644666");
}

TEST(QuantisePlan, SmallMixAndOwnOutput) {
  auto tensors = llama_like(16, 512);
  tensors.push_back({"output.weight", DType::F16, {1000, 512}});
  const auto choices = plan_quantisation(find_mix("Q4_K_S"), tensors, 16);
  EXPECT_EQ(type_of(choices, "output.weight"), DType::Q6_K);
  EXPECT_EQ(type_of(choices, "token_embd.weight"), DType::Q4_K);
  EXPECT_EQ(type_of(choices, "blk.3.attn_v.weight"), DType::Q5_K);
  EXPECT_EQ(type_of(choices, "blk.4.attn_v.weight"), DType::Q4_K);
  EXPECT_EQ(type_of(choices, "blk.1.ffn_down.weight"), DType::Q5_K);
  EXPECT_EQ(type_of(choices, "blk.2.ffn_down.weight"), DType::Q4_K);
}

TEST(QuantisePlan, RowsThatDoNotFit) {
  const auto of32 = plan_quantisation(find_mix("Q4_K"), llama_like(1, 64), 1);
  EXPECT_EQ(type_of(of32, "blk.0.attn_q.weight"), DType::Q5_0);
  EXPECT_EQ(type_of(of32, "token_embd.weight"), DType::Q8_0);
  EXPECT_EQ(of32[0].wanted, DType::Q6_K);
  EXPECT_EQ(type_of(plan_quantisation(find_mix("Q5_K_S"), llama_like(1, 64), 1), "blk.0.attn_q.weight"), DType::Q5_1);
  EXPECT_EQ(type_of(plan_quantisation(find_mix("Q8_0"), llama_like(1, 48), 1), "blk.0.attn_q.weight"), DType::F16);
  expect_error(ErrorCode::invalid_argument, {"'Q9'", "Q4_K_M"}, [] { find_mix("Q9"); });
}

// The published Q4_K_M of Gemma 3 270M was made by llama.cpp: the same mix must give every tensor the same type.
TEST(QuantisePlan, SameTypesAsAPublishedFile) {
  const char* models = std::getenv("SLIPRING_MODELS");
  const std::filesystem::path path =
      std::filesystem::path(models == nullptr ? "" : models) / "gemma-3-270m-q4_k_m.gguf";
  if (models == nullptr || !std::filesystem::exists(path))
    GTEST_SKIP() << "no gemma-3-270m-q4_k_m.gguf in $SLIPRING_MODELS";
  const auto file = MappedFile::open(path);
  const GgufHeader header = GgufHeader::parse(file->bytes(), path.string());
  std::vector<TensorFacts> tensors;
  for (const GgufTensor& tensor : header.tensors())
    tensors.push_back({std::string(tensor.name), DType::F32, tensor.shape});
  const auto choices = plan_quantisation(find_mix("Q4_K_M"), tensors, 18);
  for (size_t i = 0; i < choices.size(); ++i) {
    EXPECT_EQ(to_string(choices[i].to), to_string(header.tensors()[i].dtype)) << choices[i].name;
  }
}

TEST(QuantiseModel, EveryMixGivesAFileThatReadsBack) {
  const TempFolder folder;
  const auto source = ModelFiles::open(kF32Model);
  for (const QuantisationMix& mix : quantisation_mixes()) {
    const auto out = folder.path() / (std::string(mix.name) + ".gguf");
    const QuantiseReport report = quantise_model(kF32Model, out, mix.name, {.threads = 2});
    EXPECT_EQ(report.tensors.size(), source->tensor_names().size());
    const auto files = ModelFiles::open(out);
    EXPECT_EQ(files->integer({"", "/general.file_type"}), mix.file_type);
    EXPECT_EQ(files->texts({"", "/tokenizer.ggml.tokens"}), source->texts({"", "/tokenizer.ggml.tokens"}));
    for (const TensorChoice& choice : report.tensors) {
      const Tensor from = source->find_tensor({"", choice.name});
      const Tensor to = files->find_tensor({"", choice.name});
      ASSERT_EQ(to.shape(), from.shape()) << choice.name;
      ASSERT_EQ(to.dtype(), choice.to) << choice.name;
      std::vector<float> values(static_cast<size_t>(to.elements()));
      dequantise(to.dtype(), to.raw(), to.elements(), values.data());
      double error = 0;
      double power = 0;
      for (int64_t i = 0; i < to.elements(); ++i) {
        const double x = from.data<float>()[i];
        error += std::pow(values[static_cast<size_t>(i)] - x, 2);
        power += x * x;
      }
      EXPECT_LE(error, 0.01 * power) << mix.name << ' ' << choice.name;
    }
  }
}

TEST(QuantiseModel, ThreadsDoNotMatterAndSubstitutionsAreReported) {
  const TempFolder folder;
  const QuantiseReport one = quantise_model(kF32Model, folder.path() / "1", "Q4_K_M", {.threads = 1});
  quantise_model(kF32Model, folder.path() / "3", "q4_k_m", {.threads = 3});
  EXPECT_EQ(MappedFile::open(folder.path() / "1")->text(), MappedFile::open(folder.path() / "3")->text());
  ASSERT_FALSE(one.substitutions().empty());  // its rows are 64 wide
  for (const TensorChoice& choice : one.substitutions()) {
    EXPECT_TRUE(choice.to == DType::Q5_0 || choice.to == DType::Q8_0) << choice.name;
  }
}

TEST(QuantiseModel, AFailureLeavesNothing) {
  const TempFolder folder;
  const auto bad = folder.path() / "bad.gguf";
  {
    GgufWriter writer(bad);
    writer.set_text("general.architecture", "llama");
    std::vector<float> values(64, 1.0F);
    values[40] = NAN;
    writer.declare("blk.0.attn_q.weight", DType::F32, {2, 32});
    writer.append("blk.0.attn_q.weight", Tensor::from(values, {2, 32}));
    writer.finish();
  }
  const auto out = folder.path() / "out.gguf";
  expect_error(ErrorCode::non_finite, {"'blk.0.attn_q.weight'"}, [&] { quantise_model(bad, out, "Q8_0"); });
  const auto cut = folder.write("cut.gguf", MappedFile::open(kF32Model)->text().substr(0, 100'000));
  expect_error(ErrorCode::bad_file, {"cut.gguf", "100000"}, [&] { quantise_model(cut, out, "Q8_0"); });
  expect_error(ErrorCode::cancelled, {"stop"}, [&] {
    quantise_model(kF32Model, out, "Q8_0", {.threads = 1, .progress = [](int64_t, int64_t, std::string_view) {
                                              throw Error(ErrorCode::cancelled,
                                                          {.where = "stop", .expected = {}, .got = {}, .advice = {}});
                                            }});
  });
  size_t files = 0;
  for ([[maybe_unused]] const auto& item : std::filesystem::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 2U);
}

TEST(QuantiseModel, KeepsItsSource) {
  const TempFolder folder;
  const auto path = folder.write("m.gguf", MappedFile::open(kF32Model)->text());
  expect_error(ErrorCode::invalid_argument, {"m.gguf"}, [&] { quantise_model(path, path, "Q8_0"); });
  EXPECT_EQ(MappedFile::open(path)->text(), MappedFile::open(kF32Model)->text());
}

// Finite weights must not come back as infinities, or clipped to what a float16 scale can say.
TEST(QuantiseModel, RefusesWeightsBeyondTheTargetsRange) {
  const TempFolder folder;
  const auto source = folder.path() / "wide.gguf";
  const auto quantised_with = [&](const char* tensor, float value, const char* type) {
    GgufWriter writer(source);
    writer.set_text("general.architecture", "llama");
    std::vector<float> values(64, 1.0F);
    values[40] = value;
    writer.declare(tensor, DType::F32, {2, 32});
    writer.append(tensor, Tensor::from(values, {2, 32}));
    writer.finish();
    quantise_model(source, folder.path() / "out.gguf", type);
  };
  const char* matrix = "blk.0.attn_q.weight";
  const char* norm = "blk.0.attn_norm.weight";
  for (const char* type : {"F16", "Q8_0", "Q4_0"}) {
    EXPECT_NO_THROW(quantised_with(matrix, -65504.0F, type)) << type;
    expect_error(ErrorCode::unsupported, {matrix, "1000000", "65504"}, [&] { quantised_with(matrix, 1e6F, type); });
  }
  EXPECT_NO_THROW(quantised_with(matrix, 3.38e38F, "BF16"));
  expect_error(ErrorCode::unsupported, {matrix, "BF16"}, [&] { quantised_with(matrix, -3.4e38F, "BF16"); });
  EXPECT_NO_THROW(quantised_with(norm, 3.4e38F, "Q8_0"));  // stays F32
  expect_error(ErrorCode::non_finite, {norm}, [&] { quantised_with(norm, INFINITY, "Q8_0"); });
  expect_error(ErrorCode::non_finite, {norm}, [&] { quantised_with(norm, -NAN, "Q8_0"); });
}

}  // namespace
}  // namespace slipring
