// Unit tests: frequencies of every kind of scaling against those that Hugging Face transformers computes
// (tools/make_rope_cases.py).
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/test_bytes.h"
#include "models/config.h"

namespace slipring {
namespace {

using nlohmann::json;
using testing::Bytes;
using testing::TempFolder;

const std::string kOneTensor = R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";

Rope rope_of(const json& config, double theta, int rotary_dim, const RopeChoices& choices) {
  const TempFolder folder;
  folder.write("config.json", config.dump());
  folder.write("model.safetensors", Bytes().string(kOneTensor).number(1.0F).str());
  const auto files = ModelFiles::open(folder.path());
  ThreadPool pool(1);
  const WeightLoader load(*files, pool);
  return read_rope(load, theta, rotary_dim, "rope_parameters", RopeLayout::halves, choices);
}

TEST(RopeScaling, FrequenciesAreTheReferences) {
  std::ifstream in(std::string(SLIPRING_SOURCE_DIR) + "/tests/data/rope/cases.json");
  const json cases = json::parse(in);
  ASSERT_GE(cases.size(), 11U);
  for (const json& c : cases) {
    const json config = {{"model_type", "llama"},
                         {"max_position_embeddings", c["max_position_embeddings"]},
                         {"rope_parameters", c["rope_parameters"]}};
    const Rope rope =
        rope_of(config, c["rope_parameters"]["rope_theta"], c["rotary_dim"], {.long_factors = c["long"].get<bool>()});
    const auto expected = c["inverse_frequencies"].get<std::vector<float>>();
    ASSERT_EQ(rope.inverse_frequencies.size(), expected.size()) << c["name"];
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(rope.inverse_frequencies[i] / expected[i], 1.0F, 1e-6F) << c["name"] << " " << i;
    }
    EXPECT_NEAR(rope.magnitude, c["attention_factor"].get<float>(), 1e-6F) << c["name"];
  }
}

// gpt-oss does not round the ramp's bounds; where its files do not say so, the family does.
TEST(RopeScaling, WhetherYarnRoundsIsTheFilesWordBeforeTheFamilys) {
  json parameters = {
      {"rope_type", "yarn"}, {"rope_theta", 150000.0}, {"factor", 32.0}, {"original_max_position_embeddings", 4096}};
  const auto frequencies = [&](bool truncates) {
    const json config = {{"model_type", "llama"}, {"max_position_embeddings", 131072}, {"rope_parameters", parameters}};
    return rope_of(config, 150000.0, 64, {.yarn_truncates = truncates}).inverse_frequencies;
  };
  EXPECT_NE(frequencies(true), frequencies(false));
  const auto rounded = frequencies(true);
  parameters["truncate"] = true;
  EXPECT_EQ(frequencies(false), rounded);
}

TEST(RopeScaling, TheBaseIsTheSectionsThenTheOlderKeyThenWhatAllShare) {
  const auto theta = [](const json& more) {
    const TempFolder folder;
    json config = {{"model_type", "gemma3_text"}};
    config.update(more);
    folder.write("config.json", config.dump());
    folder.write("model.safetensors", Bytes().string(kOneTensor).number(1.0F).str());
    return read_theta(*ModelFiles::open(folder.path()), "rope_parameters/sliding_attention", 5.0,
                      "rope_local_base_freq");
  };
  const json own = {{"sliding_attention", {{"rope_theta", 2.0}}}, {"rope_theta", 3.0}};
  EXPECT_EQ(theta({{"rope_parameters", own}, {"rope_local_base_freq", 4.0}}), 2.0);
  EXPECT_EQ(theta({{"rope_parameters", {{"rope_theta", 3.0}}}, {"rope_local_base_freq", 4.0}}), 4.0);
  EXPECT_EQ(theta({{"rope_parameters", {{"rope_theta", 3.0}}}}), 3.0);
  EXPECT_EQ(theta(json::object()), 5.0);
  testing::expect_error(ErrorCode::bad_file, {"rope theta", "above 0"}, [&] { theta({{"rope_local_base_freq", -1}}); });
}

}  // namespace
}  // namespace slipring
