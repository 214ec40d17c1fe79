// Any bytes as text: encoding and decoding gives them back, streaming and stop strings keep their promises.
#include <cstdlib>
#include <string>
#include <string_view>

#include <slipring/stop_strings.h>
#include <slipring/tokenizer.h>

#include "text/fake_files.h"
#include "text/utf8.h"

namespace {

using namespace slipring;

std::vector<std::shared_ptr<const Tokenizer>> make_tokenizers() {
  std::vector<std::shared_ptr<const Tokenizer>> all;
  for (const char* pre : {"gpt-2", "default", "llama-bpe", "smollm", "qwen2", "gpt-4o", "tekken"}) {
    auto facts = testing::byte_level_facts({{"th", TokenKind::normal},
                                            {"the", TokenKind::normal},
                                            {"<eot>", TokenKind::control},
                                            {"<t>", TokenKind::user_defined}},
                                           {"t h", "th e"});
    facts["tokenizer.ggml.pre"] = pre;
    all.push_back(testing::gguf_tokenizer(facts));
  }
  for (const bool space_prefix : {false, true}) {
    all.push_back(testing::gguf_tokenizer(testing::sentencepiece_facts({{"th", TokenKind::normal},
                                                                        {"▁the", TokenKind::normal},
                                                                        {"▁", TokenKind::normal},
                                                                        {"t", TokenKind::normal},
                                                                        {"h", TokenKind::normal},
                                                                        {"<t>", TokenKind::user_defined}},
                                                                       space_prefix)));
  }
  return all;
}

void check(bool holds) {
  if (!holds) std::abort();
}

void round_trip(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text) {
  const auto ids = tokenizer->encode(text);
  for (const TokenId id : ids) check(!tokenizer->is_control(id));
  const std::string bytes = tokenizer->decode(ids);
  // SentencePiece cannot tell U+2581 from a space.
  if (text.find("\xE2\x96\x81") == std::string_view::npos) check(bytes == text);
  Detokenizer detokenizer(tokenizer);
  StopStrings stops({"the ", "he", "\xC3\xA9"});
  std::string streamed;
  std::string kept;
  for (const TokenId id : ids) {
    const std::string delta = detokenizer.add(id);
    check(utf8::valid_prefix(delta) == delta.size());
    streamed += delta;
    kept += stops.add(delta);
  }
  const std::string tail = detokenizer.finish();
  streamed += tail;
  kept += stops.add(tail);
  kept += stops.finish();
  check(streamed == valid_utf8(bytes));
  StopStrings once({"the ", "he", "\xC3\xA9"});
  std::string whole = once.add(streamed);
  whole += once.finish();
  check(kept == whole && stops.stopped() == once.stopped());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokenizers = make_tokenizers();
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto& tokenizer = tokenizers[data[0] % tokenizers.size()];
  round_trip(tokenizer, text);
  tokenizer->encode(text, slipring::ControlTokens::parse);
  return 0;
}
