// What every family gets without code of its own: for each fixture folder, the checks of `slipring verify`, a session
// saved to a file and gone on with, and speculation by n-grams.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <unistd.h>

#include <slipring/drafts.h>
#include <slipring/generate.h>
#include <slipring/snapshot.h>

#include "engine/verify.h"
#include "fixtures.h"
#include "formats/test_bytes.h"
#include "text/byte_level.h"

namespace slipring::testing {
namespace {

namespace fs = std::filesystem;

// The folder's files, and where it has no vocabulary one of a byte a token: generate() gives text.
void link_with_vocabulary(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from)) {
    fs::create_symlink(entry.path(), to / entry.path().filename());
  }
  if (fs::exists(to / "tokenizer.json")) return;
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[byte_level::spelling(static_cast<uint8_t>(byte))] = byte;
  const nlohmann::json tokenizer{{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                                 {"decoder", {{"type", "ByteLevel"}}},
                                 {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
  std::ofstream(to / "tokenizer.json") << tokenizer;
}

class Features : public ::testing::TestWithParam<fs::path> {
 protected:
  void SetUp() override {
    const TempFolder folder;
    link_with_vocabulary(GetParam(), folder.path());
    model_ = Model::load(folder.path());
    ids_ = TensorFile(GetParam() / "case.safetensors").ids("input_ids");
    ids_.resize(std::min<size_t>(ids_.size(), 70));
  }
  Session session(int64_t chunk = 512) const {
    return Session(model_, {.kv_dtype = DType::F16, .context = 0, .chunk = chunk, .threads = 2});
  }
  std::shared_ptr<const Model> model_;
  std::vector<TokenId> ids_;
};

TEST_P(Features, VerifyFindsTheSameBitsEverywhere) {
  VerifyOptions options;
  options.threads = 2;
  options.text = ids_;
  const auto checks = verify_model(model_, options);
  ASSERT_GE(checks.size(), 5U);
  int64_t cases = 0;
  for (const VerifyCheck& check : checks) {
    EXPECT_TRUE(check.same) << check.name << ": " << check.largest << " " << check.remark;
    cases += check.cases;
  }
  EXPECT_GT(cases, 100);
}

TEST_P(Features, ASavedSessionGoesOnWithTheSameBits) {
  const fs::path path = fs::temp_directory_path() / ("slipring-family-" + std::to_string(::getpid()));
  for (const size_t length : {size_t{5}, size_t{12}, size_t{13}, ids_.size() - 1}) {
    Session first = session();
    first.prefill(std::span(ids_).first(length));
    Snapshot::take(first)->save(path);
    const auto expected = first.prefill(std::span(ids_).subspan(length));
    Session second = session(5);
    Snapshot::load(path)->restore(second);
    const auto row = second.prefill(std::span(ids_).subspan(length));
    EXPECT_TRUE(std::equal(row.begin(), row.end(), expected.begin(), expected.end())) << length;
  }
  fs::remove(path);
}

TEST_P(Features, NgramDraftsChangeNoToken) {
  // A text that repeats itself, so that there is something to guess.
  std::vector<TokenId> prompt;
  for (int i = 0; i < 3; ++i) prompt.insert(prompt.end(), ids_.begin(), ids_.begin() + 15);
  GenerateOptions options;
  options.max_tokens = 40;
  options.ignore_end = true;
  options.sampling.temperature = 0.0;
  Session plain = session();
  const auto expected = generate(plain, prompt, options);
  Session guessed = session();
  guessed.attach_drafts(make_ngram_drafts());
  const auto result = generate(guessed, prompt, options);
  EXPECT_EQ(result.tokens, expected.tokens);
  EXPECT_EQ(expected.tokens.size(), 40U);
}

std::string name_of(const ::testing::TestParamInfo<fs::path>& parameter) {
  return testing::test_name(parameter.param);
}

INSTANTIATE_TEST_SUITE_P(Families, Features, ::testing::ValuesIn(testing::small_target_folders()), name_of);

TEST(Families, EveryFamilyHasAFixture) {
  std::set<std::string> families;
  for (const fs::path& folder : testing::small_target_folders()) families.insert(Model::load(folder)->spec().family);
  const std::set<std::string> all{"cohere2", "gemma2", "gemma3", "gpt_oss", "llama", "muse_glimmer", "olmo3", "phi3"};
  EXPECT_EQ(families, all);
}

}  // namespace
}  // namespace slipring::testing
