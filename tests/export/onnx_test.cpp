// What holds of an exported file, read back from the file itself; and the text form, read back.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>
#include <set>
#include <unistd.h>

#include <slipring/error.h>
#include <slipring/model.h>

#include "engine/export.h"
#include "fixtures.h"
#include "program/interpreter.h"
#include "program/onnx_export.h"
#include "program/parse.h"
#include "program/quantise.h"
#include "program/weights_file.h"

namespace slipring {
namespace {

namespace fs = std::filesystem;

/// A folder that is gone after the test.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("slipring_export_test_" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

onnx::ModelProto read_onnx(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromIstream(&file)) << path;
  return model;
}

int count_ops(const onnx::ModelProto& model, std::string_view op) {
  return static_cast<int>(std::count_if(model.graph().node().begin(), model.graph().node().end(),
                                        [op](const onnx::NodeProto& node) { return node.op_type() == op; }));
}

class ExportedFile : public testing::Test {
 protected:
  void write(bool embeddings = false) {
    const auto model = Model::load(test::data("muse-glimmer"), {.threads = 2});
    export_model(*model, {.embeddings = embeddings, .quantise = {}}, folder_.path());
  }
  Folder folder_;
};

TEST_F(ExportedFile, EveryWriteIndexComesFromShapes) {
  write();
  for (const char* name : {"main.onnx", "prefill.onnx", "score.onnx"}) {
    const auto model = read_onnx(folder_.path() / name);
    EXPECT_EQ(count_ops(model, "ScatterND"), 2 * 6) << name;  // k and v of six sliding layers
    EXPECT_EQ(write_index_problems(model), std::vector<std::string>{}) << name;
  }
}

TEST_F(ExportedFile, EveryWriteIndexOfEveryFamily) {
  for (const char* family : {"gemma2", "gemma3", "mistral", "phi3", "olmo3", "cohere2", "gpt-oss"}) {
    const auto model = Model::load(test::data(family), {.threads = 2});
    export_model(*model, {.quantise = {}}, folder_.path());
    const auto sliding = std::count_if(model->spec().layers.begin(), model->spec().layers.end(),
                                       [](const LayerSpec& layer) { return layer.kind == LayerKind::sliding; });
    EXPECT_GT(sliding, 0) << family;
    for (const char* name : {"main.onnx", "prefill.onnx", "score.onnx"}) {
      const auto graph = read_onnx(folder_.path() / name);
      EXPECT_EQ(count_ops(graph, "ScatterND"), 2 * sliding) << family << " " << name;
      EXPECT_EQ(write_index_problems(graph), std::vector<std::string>{}) << family << " " << name;
    }
  }
}

TEST_F(ExportedFile, EveryWriteIndexOfADrafter) {
  const auto model = Model::load(test::data("muse-glimmer"), {.threads = 2});
  export_model(*model, {.quantise = {}, .drafter = test::data("muse-glimmer-assistant")}, folder_.path());
  const auto inject = read_onnx(folder_.path() / "inject.onnx");
  EXPECT_EQ(count_ops(inject, "ScatterND"), 2 * 3);
  EXPECT_EQ(write_index_problems(inject), std::vector<std::string>{});
  EXPECT_EQ(count_ops(read_onnx(folder_.path() / "draft.onnx"), "ScatterND"), 0);
}

// The test above is worth something only if an index from a tensor's contents turns it red.
TEST_F(ExportedFile, AnIndexFromAnInputIsFound) {
  write();
  auto model = read_onnx(folder_.path() / "score.onnx");
  for (auto& node : *model.mutable_graph()->mutable_node()) {
    if (node.op_type() != "ScatterND") continue;
    // As a position input would do it: the tokens' own values reach the index.
    auto& cast = *model.mutable_graph()->add_node();
    cast.set_op_type("Unsqueeze");
    cast.add_input("token_ids");
    cast.add_input(model.graph().initializer(0).name());
    cast.add_output("stolen");
    node.set_input(1, "stolen");
    break;
  }
  const auto found = write_index_problems(model);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0], "the index of write ring.0.k.next is read from the contents of token_ids");
}

TEST_F(ExportedFile, AnIndexThroughAComputationIsFound) {
  write();
  auto model = read_onnx(folder_.path() / "score.onnx");
  for (auto& node : *model.mutable_graph()->mutable_node()) {
    if (node.op_type() != "ScatterND") continue;
    auto& compute = *model.mutable_graph()->add_node();
    compute.set_op_type("Cast");
    compute.add_input(node.input(2));
    compute.add_output("stolen");
    node.set_input(1, "stolen");
    break;
  }
  const auto found = write_index_problems(model);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0], "the index of write ring.0.k.next passes through Cast");
}

// A constant that is an input as well is only a default: the caller may feed another.
TEST_F(ExportedFile, AnIndexFromAConstantThatCanBeFedIsFound) {
  write();
  auto model = read_onnx(folder_.path() / "score.onnx");
  for (auto& node : *model.mutable_graph()->mutable_node()) {
    if (node.op_type() != "ScatterND") continue;
    const std::string constant = model.graph().initializer(0).name();
    model.mutable_graph()->add_input()->set_name(constant);
    node.set_input(1, constant);
    break;
  }
  const auto found = write_index_problems(model);
  ASSERT_FALSE(found.empty());
  EXPECT_TRUE(found[0].starts_with("the index of write ring.0.k.next is read from the contents of ")) << found[0];
}

// A ring that is cut and put together again would have no index to look at.
TEST_F(ExportedFile, ARingThatLeavesWithoutAWriteIsFound) {
  write();
  auto model = read_onnx(folder_.path() / "score.onnx");
  for (auto& node : *model.mutable_graph()->mutable_node()) {
    if (node.op_type() != "ScatterND") continue;
    node.set_op_type("Concat");
    break;
  }
  const auto found = write_index_problems(model);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0], "ring.0.k.next is not what a write makes");
}

TEST_F(ExportedFile, EmbeddingsPathHasNoRing) {
  write(true);
  for (const char* name : {"main.onnx", "prefill.onnx", "score.onnx", "embed.onnx"}) {
    const auto model = read_onnx(folder_.path() / name);
    EXPECT_EQ(count_ops(model, "ScatterND"), 0) << name;
    for (const auto& input : model.graph().input()) EXPECT_FALSE(input.name().starts_with("ring")) << input.name();
  }
}

TEST_F(ExportedFile, NothingButTheBundleIsLeft) {
  write();
  std::set<std::string> names;
  for (const auto& item : fs::directory_iterator(folder_.path())) names.insert(item.path().filename().string());
  for (const std::string& name : names) EXPECT_EQ(name.find("tmp"), std::string::npos) << name;
  EXPECT_EQ(names.count("manifest.json"), 1U);
}

TEST_F(ExportedFile, TextFormComesBackTheSame) {
  write();
  WeightsFile weights(folder_.path(), test::pool());
  for (const char* name : {"main", "prefill", "score"}) {
    std::ifstream file(folder_.path() / (std::string(name) + ".program"));
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    // Numbers of values differ where dead nodes were removed; after one round they do not.
    const std::string once = to_text(parse_program(text, weights, name));
    EXPECT_EQ(to_text(parse_program(once, weights, name)), once);
    EXPECT_EQ(std::count(once.begin(), once.end(), '\n'), std::count(text.begin(), text.end(), '\n'));
  }
}

/// A program that was read from a bundle: the bits of the traced one, and the guard.
TEST_F(ExportedFile, LoadedProgramsRunAsTraced) {
  write();
  WeightsFile weights(folder_.path(), test::pool());
  const auto decoder = test::decoder("muse-glimmer");
  const auto loaded = [&](const std::string& name) {
    std::ifstream file(folder_.path() / (name + ".program"));
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    return Interpreter(std::make_shared<const Program>(parse_program(text, weights, name)), test::pool());
  };
  const auto traced = [&](const char* name, StepMode mode) {
    return Interpreter(std::make_shared<const Program>(trace_decoder(
                           name, decoder, {.mode = mode, .logits = LogitRows::all, .kv_dtype = DType::F32})),
                       test::pool());
  };
  Interpreter main[] = {loaded("main"), traced("main", StepMode::main)};
  Interpreter score[] = {loaded("score"), traced("score", StepMode::prefill)};
  const std::vector<std::unique_ptr<LayerCache>> caches[] = {make_caches(main[0].program()),
                                                             make_caches(main[0].program())};
  const auto ids = test::tokens(60, 320, 4);
  size_t done = 0;
  for (const size_t count : {5, 11, 1, 1, 7, 1, 6, 9, 1, 6, 1, 1}) {
    const auto part = std::span(ids).subspan(done, count);
    std::vector<float> logits[2];
    for (const int i : {0, 1}) {
      logits[i] = (count == 1 ? main : score)[i].run(caches[i], {.tokens = part, .embeddings = {}}).at("logits");
    }
    ASSERT_EQ(logits[0], logits[1]) << "at " << done;
    ASSERT_EQ(test::cache_bytes(caches[0]), test::cache_bytes(caches[1]));
    done += count;
  }
  EXPECT_GT(done, size_t{3 * 16});
  const auto before = test::cache_bytes(caches[0]);
  try {
    main[0].run(caches[0], {.tokens = std::span(ids).first(2), .embeddings = {}});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::write_first_needs_single_token) << error.what();
  }
  EXPECT_THROW(score[0].run(caches[0], {.tokens = std::span(ids).first(16), .embeddings = {}}), Error);
  EXPECT_EQ(test::cache_bytes(caches[0]), before);
}

TEST_F(ExportedFile, CutTextIsRefused) {
  write();
  WeightsFile weights(folder_.path(), test::pool());
  std::ifstream file(folder_.path() / "main.program");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  int refused = 0;
  for (size_t length = 0; length < text.size(); length += 97) {
    try {
      parse_program(std::string_view(text).substr(0, length), weights, "cut");
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::bad_file) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 10);
}

// ---- compression

TEST(GraphMode, RefusesARing) {
  const Program main =
      trace_decoder("main", test::decoder("muse-glimmer"), {.mode = StepMode::main, .kv_dtype = DType::F16});
  try {
    trim_to_prefill(main);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("ring.0"), std::string::npos) << error.what();
  }
}

TEST(GraphMode, TrimsTheHead) {
  const Program main = trace_decoder("main", test::decoder("muse-glimmer"),
                                     {.mode = StepMode::main, .kv_dtype = DType::F16, .embeddings = true});
  const Program prefill = trim_to_prefill(main);
  EXPECT_TRUE(prefill.outputs.empty());
  EXPECT_EQ(prefill.count(OpKind::write), main.count(OpKind::write));
  EXPECT_EQ(prefill.count(OpKind::softcap), 0);
  EXPECT_LT(prefill.count(OpKind::linear), main.count(OpKind::linear));
}

TEST(EmbeddingsProgram, HasNoRingOp) {
  const Program program = trace_decoder("main", test::decoder("muse-glimmer"),
                                        {.mode = StepMode::main, .kv_dtype = DType::F16, .embeddings = true});
  int ring_ops = 0;
  for (const Node& node : program.nodes) {
    for (const ValueId input : node.inputs) {
      const bool cached = program.type(input).kind != ValueKind::tensor;
      if (cached && program.state_of(input).is_ring()) ++ring_ops;
    }
  }
  EXPECT_EQ(ring_ops, 0);
  EXPECT_EQ(program.count(OpKind::write), 8);
}

}  // namespace
}  // namespace slipring
