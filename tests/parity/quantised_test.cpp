// Every quantised type as a whole model: the embedded model written in that type by our own quantiser.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>

#include <slipring/perplexity.h>
#include <slipring/session.h>

#include "fixtures.h"
#include "formats/quantise_model.h"

namespace slipring::testing {
namespace {

namespace fs = std::filesystem;

class Quantised : public ::testing::TestWithParam<const char*> {};

std::vector<float> logits_of(const std::shared_ptr<const Model>& model, std::span<const TokenId> ids, int64_t chunk,
                             int threads) {
  Session session(model, {.kv_dtype = DType::F16, .context = 0, .chunk = chunk, .threads = threads});
  std::vector<float> all;
  session.score(ids, [&](int64_t, std::span<const float> row) { all.insert(all.end(), row.begin(), row.end()); });
  return all;
}

TEST_P(Quantised, SameBitsForChunksThreadsAndDecodeAndTheTextIsStillPredicted) {
  const fs::path out = fs::temp_directory_path() / ("slipring-quantised-" + std::string(GetParam()) + ".gguf");
  // From Q8_0: the errors add up, the bits are what is tested.
  quantise_model(default_model_path(), out, GetParam());
  const auto model = Model::load(out);
  fs::remove(out);
  const TensorFile expected(root_with({"glimmer-tiny"}) / "glimmer-tiny/case.safetensors");
  auto ids = expected.ids("input_ids");
  ids.resize(300);  // past two wraps of the window of 128
  const auto whole = logits_of(model, ids, 512, 2);
  EXPECT_TRUE(logits_of(model, ids, 1, 1) == whole) << "decode";
  EXPECT_TRUE(logits_of(model, ids, 33, 3) == whole) << "chunks of 33, three threads";

  Session session(model, {.kv_dtype = DType::F16, .context = 0, .chunk = 512, .threads = 2});
  const auto result = perplexity(session, std::span(ids).subspan(1));
  double reference = 0;
  for (size_t i = 0; i < result.nll.size(); ++i) reference += expected["nll"].data<float>()[i];
  reference /= static_cast<double>(result.nll.size());
  EXPECT_NEAR(result.mean_nll(), reference, 0.15);
}

INSTANTIATE_TEST_SUITE_P(Types, Quantised,
                         ::testing::Values("Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q4_0", "Q4_K_M", "Q5_K_M"),
                         [](const ::testing::TestParamInfo<const char*>& parameter) {
                           return std::string(parameter.param);
                         });

}  // namespace
}  // namespace slipring::testing
