// Any bytes as a folder's config.json, and as its list of shards: an Error, or a model whose keys can be asked for.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <slipring/error.h>

#include "formats/model_files.h"

namespace {

namespace fs = std::filesystem;

// A folder with one tiny weight file, for the whole run.
struct Folder {
  explicit Folder(const char* weights) {
    std::string pattern = (fs::temp_directory_path() / "slipring-fuzz-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path = pattern;
    const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    write(weights, bytes + header + std::string(4, '\0'));
    write("config.json", R"({"model_type":"llama"})");
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void write(const char* name, std::string_view bytes) const { std::ofstream(path / name, std::ios::binary) << bytes; }
  fs::path path;
};

template <class Action>
void tolerate_errors(Action action) {
  try {
    action();
  } catch (const slipring::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slipring;
  static const Folder as_config("model.safetensors");
  static const Folder as_index("model-00001-of-00001.safetensors");
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  as_config.write("config.json", bytes);
  tolerate_errors([] {
    const auto files = ModelFiles::open(as_config.path);
    for (const std::string_view key : {"hidden_size", "rope_parameters/sliding_attention/rope_theta", "layer_types",
                                       "/model_type", "tie_word_embeddings", "x"}) {
      const Names names{key, ""};
      tolerate_errors([&] { files->integer(names); });
      tolerate_errors([&] { files->real(names); });
      tolerate_errors([&] { files->boolean(names); });
      tolerate_errors([&] { files->text(names); });
      tolerate_errors([&] { files->integers(names); });
      tolerate_errors([&] { files->reals(names); });
      tolerate_errors([&] { files->texts(names); });
    }
  });
  as_index.write("model.safetensors.index.json", bytes);
  tolerate_errors([] { ModelFiles::open(as_index.path)->tensor_names(); });
  return 0;
}
