// Any bytes as tokenizer.json: an Error, or a tokenizer that can be used.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <slipring/error.h>
#include <slipring/tokenizer.h>

#include "text/fake_files.h"

namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "slipring-fuzz-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path path;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slipring;
  static const Folder folder;
  std::ofstream(folder.path / "tokenizer.json", std::ios::binary)
      << std::string_view(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = Tokenizer::load(testing::FakeFiles(false, folder.path, nlohmann::json::object()));
    for (TokenId id = 0; id < tokenizer->size() && id < 1000; ++id) {
      tokenizer->token_bytes(id, true);
      tokenizer->find(tokenizer->token_text(id));
    }
    for (const char* text : {"the th 12 <eot>", "\xFF", "  x\n", "é日本"}) {
      try {
        tokenizer->decode(tokenizer->encode(text, ControlTokens::parse));
      } catch (const Error&) {
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
