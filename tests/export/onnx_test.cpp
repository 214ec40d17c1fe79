// What holds of an exported file, read back from the file itself; and the text form, read back.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>
#include <unistd.h>

#include <slipring/error.h>
#include <slipring/model.h>

#include "engine/export.h"
#include "fixtures.h"
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
