// Any bytes as tokenizer.json: an Error, or a tokenizer that can be used.
#include <slipring/error.h>
#include <slipring/tokenizer.h>

#include "formats/temp_folder.h"
#include "text/fake_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slipring;
  static const testing::TempFolder folder;
  folder.write("tokenizer.json", {reinterpret_cast<const char*>(data), size});
  try {
    const auto tokenizer = Tokenizer::load(testing::FakeFiles(false, folder.path(), nlohmann::json::object()));
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
