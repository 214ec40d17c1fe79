// Whole models with one fact changed, each in turn: what comes of it is a model that computes, or an Error of one line.
#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>

#include <slipring/error.h>
#include <slipring/session.h>

#include "fixtures.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/mapped_file.h"
#include "formats/quantise_model.h"
#include "formats/test_bytes.h"

namespace slipring::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Outcomes {
  int models = 0;
  int errors = 0;
};

// Rings are allocated as long as the window is, and a changed window may be as long as the context.
constexpr int64_t kLongestWindow = 4096;

void load_and_step(const fs::path& path, const std::string& change, Outcomes& outcomes) {
  try {
    const auto model = Model::load(path, {.threads = 1});
    ++outcomes.models;
    for (const LayerSpec& layer : model->spec().layers) {
      ASSERT_TRUE(layer.kind == LayerKind::full || layer.window > 0) << change;
      if (layer.window > kLongestWindow) return;
    }
    Session session(model, {.kv_dtype = DType::F16, .context = 0, .chunk = 2, .threads = 1});
    const std::vector<TokenId> ids{0, 0, 0};
    EXPECT_EQ(session.prefill(ids).size(), static_cast<size_t>(model->spec().vocab_size)) << change;
  } catch (const Error& error) {
    ++outcomes.errors;
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << change << ": " << error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << change << ": no Error but " << error.what();
  }
}

// Every value of a config, by its path.
std::vector<json::json_pointer> values_of(const json& config) {
  std::vector<json::json_pointer> places;
  const json flat = config.flatten();
  for (const auto& [place, value] : flat.items()) places.emplace_back(place);
  return places;
}

class OddConfig : public ::testing::TestWithParam<fs::path> {};

TEST_P(OddConfig, EveryValueChangedOrGone) {
  json config;
  std::ifstream(GetParam() / "config.json") >> config;
  const TempFolder folder;
  fs::create_symlink(GetParam() / "model.safetensors", folder.path() / "model.safetensors");
  Outcomes outcomes;
  const auto odd = {json(0),    json(-1),         json(1),      json(3),        json(INT64_MAX), json(1e308),
                    json(0.3),  json(nullptr),    json("text"), json::array(),  json::object(),  json(true),
                    json(4096), json(UINT64_MAX), json({{0}}),  json("default")};
  for (const json::json_pointer& place : values_of(config)) {
    for (const json& value : odd) {
      json changed = config;
      changed[place] = value;
      folder.write("config.json", changed.dump());
      load_and_step(folder.path(), place.to_string() + " = " + value.dump(), outcomes);
    }
    json changed = config;
    json& parent = changed[place.parent_pointer()];
    if (parent.is_array()) {
      parent.erase(parent.size() - 1);
    } else {
      parent.erase(place.back());
    }
    folder.write("config.json", changed.dump());
    load_and_step(folder.path(), "without " + place.to_string(), outcomes);
  }
  EXPECT_GT(outcomes.models, 10);
  EXPECT_GT(outcomes.errors, 10);
}

std::string name_of(const ::testing::TestParamInfo<fs::path>& parameter) {
  return testing::test_name(parameter.param);
}

INSTANTIATE_TEST_SUITE_P(Families, OddConfig, ::testing::ValuesIn(testing::small_target_folders()), name_of);

class OddGguf : public ::testing::TestWithParam<const char*> {
 protected:
  fs::path source() const { return root_with({fs::path("gguf") / GetParam()}) / "gguf" / GetParam(); }
};

// Writes `header` again with `change` in place of one key, and all tensors but `left_out`.
template <class Change>
void rewrite(const MappedFile& file, const GgufHeader& header, const fs::path& to, std::string_view key, Change change,
             std::string_view left_out = {}) {
  GgufWriter writer(to);
  for (const GgufHeader::Entry& entry : header.entries()) {
    if (entry.key == key) {
      change(writer);
    } else {
      writer.copy(entry.key, entry.value);
    }
  }
  for (const GgufTensor& t : header.tensors()) {
    if (t.name != left_out) writer.declare(std::string(t.name), t.dtype, t.shape);
  }
  for (const GgufTensor& t : header.tensors()) {
    if (t.name != left_out) writer.append(t.name, Tensor::view(t.dtype, t.shape, file.bytes().data() + t.begin));
  }
  writer.finish();
}

TEST_P(OddGguf, EveryKeyChangedOrGoneAndEveryTensorGone) {
  const auto file = MappedFile::open(source());
  const GgufHeader header = GgufHeader::parse(file->bytes(), source().string());
  const TempFolder folder;
  const fs::path out = folder.path() / "odd.gguf";
  Outcomes outcomes;
  for (const GgufHeader::Entry& entry : header.entries()) {
    const std::string key(entry.key);
    const auto attempt = [&](const char* what, const auto& change) {
      rewrite(*file, header, out, key, change);
      load_and_step(out, key + " " + what, outcomes);
    };
    attempt("gone", [](GgufWriter&) {});
    for (const uint32_t value : {0U, 1U, 3U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
      attempt("u32", [&](GgufWriter& writer) { writer.set_u32(key, value); });
    }
    for (const float value : {0.0F, -1.0F, NAN, INFINITY, 1e30F}) {
      attempt("f32", [&](GgufWriter& writer) { writer.set_f32(key, value); });
    }
    attempt("text", [&](GgufWriter& writer) { writer.set_text(key, "text"); });
    attempt("bool", [&](GgufWriter& writer) { writer.set_bool(key, true); });
    attempt("no texts", [&](GgufWriter& writer) { writer.set_texts(key, {}); });
    const std::vector<int32_t> numbers{0, -1, 7};
    attempt("i32s", [&](GgufWriter& writer) { writer.set_i32s(key, numbers); });
  }
  const int before = outcomes.errors;
  for (const GgufTensor& tensor : header.tensors()) {
    rewrite(
        *file, header, out, {}, [](GgufWriter&) {}, tensor.name);
    load_and_step(out, std::string(tensor.name) + " gone", outcomes);
  }
  EXPECT_GT(outcomes.models, 10);
  EXPECT_GT(outcomes.errors - before, 10);
}

// Cut anywhere, or one byte more: loading and quantising say the same, and quantising leaves nothing behind.
TEST_P(OddGguf, CutsAreRefusedByEveryReader) {
  const std::string whole(MappedFile::open(source())->text());
  const TempFolder folder;
  const size_t size = whole.size();
  const auto entries = [&] { return std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()); };
  for (const size_t length :
       {size_t{0}, size_t{3}, size_t{4}, size_t{23}, size_t{24}, size_t{500}, size / 2, size - 1}) {
    const auto cut = folder.write("cut.gguf", std::string_view(whole).substr(0, length));
    const auto name = cut.string();
    expect_error(ErrorCode::bad_file, {name}, [&] { Model::load(cut); });
    expect_error(ErrorCode::bad_file, {name}, [&] { quantise_model(cut, folder.path() / "out.gguf", "Q8_0"); });
    EXPECT_EQ(entries(), 1) << length;
  }
  const auto longer = folder.write("cut.gguf", whole + "x");  // bytes after the last tensor are allowed
  EXPECT_NO_THROW(Model::load(longer));
  EXPECT_NO_THROW(quantise_model(longer, folder.path() / "out.gguf", "Q8_0"));
}

INSTANTIATE_TEST_SUITE_P(Families, OddGguf,
                         ::testing::Values("muse-glimmer-q8_0.gguf", "gemma2-f32.gguf", "gpt-oss-f16.gguf"),
                         [](const ::testing::TestParamInfo<const char*>& parameter) {
                           return testing::test_name(parameter.param);
                         });

}  // namespace
}  // namespace slipring::testing
