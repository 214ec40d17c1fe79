// For tests: the facts of a model's files, given in the test itself.
#pragma once

#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <slipring/error.h>

#include "formats/model_files.h"
#include "text/byte_level.h"
#include "text/vocabulary.h"

namespace slipring::testing {

/// GGUF keys as "tokenizer.ggml.model", or config.json's keys where `gguf` is false.
class FakeFiles final : public ModelFiles {
 public:
  FakeFiles(bool gguf, std::filesystem::path path, nlohmann::json facts, std::string architecture = "llama")
      : gguf_(gguf), path_(std::move(path)), architecture_(std::move(architecture)), facts_(std::move(facts)) {}

  bool is_gguf() const noexcept override { return gguf_; }
  const std::filesystem::path& path() const noexcept override { return path_; }
  const std::string& architecture() const noexcept override { return architecture_; }
  std::optional<int64_t> integer(Names key) const override { return get<int64_t>(key); }
  std::optional<double> real(Names key) const override { return get<double>(key); }
  std::optional<bool> boolean(Names key) const override { return get<bool>(key); }
  std::optional<std::string> text(Names key) const override { return get<std::string>(key); }
  std::optional<std::vector<int64_t>> integers(Names key) const override { return get<std::vector<int64_t>>(key); }
  std::optional<std::vector<double>> reals(Names key) const override { return get<std::vector<double>>(key); }
  std::optional<std::vector<std::string>> texts(Names key) const override { return get<std::vector<std::string>>(key); }
  std::optional<std::vector<std::string_view>> text_views(Names key) const override {
    auto strings = texts(key);
    if (!strings) return std::nullopt;
    kept_.push_back(std::move(*strings));
    return std::vector<std::string_view>(kept_.back().begin(), kept_.back().end());
  }
  Tensor find_tensor(Names, int64_t) const override { return {}; }
  std::vector<std::string> tensor_names() const override { return {}; }
  void release(const Tensor&) const noexcept override {}
  int64_t file_bytes() const noexcept override { return 0; }

 private:
  template <typename T>
  std::optional<T> get(Names key) const {
    const std::string name(gguf_ ? key.gguf.substr(key.gguf.empty() ? 0 : 1) : key.hf);
    const auto found = facts_.find(name);
    if (found == facts_.end()) return std::nullopt;
    try {
      return found->template get<T>();
    } catch (const nlohmann::json::exception&) {
      throw Error(ErrorCode::bad_file, {name, "another type", found->type_name(), ""});
    }
  }

  bool gguf_;
  std::filesystem::path path_;
  std::string architecture_;
  nlohmann::json facts_;
  mutable std::deque<std::vector<std::string>> kept_;
};

/// Metadata of a byte-level vocabulary: ids 0 to 255 are the bytes, then the extra tokens with their kinds.
inline nlohmann::json byte_level_facts(const std::vector<std::pair<std::string, TokenKind>>& extra = {},
                                       const std::vector<std::string>& merges = {}) {
  std::vector<std::string> tokens;
  std::vector<int> kinds;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(byte_level::spelling(static_cast<uint8_t>(byte)));
    kinds.push_back(1);
  }
  for (const auto& [text, kind] : extra) {
    tokens.push_back(text);
    kinds.push_back(static_cast<int>(kind));
  }
  return {{"tokenizer.ggml.model", "gpt2"},
          {"tokenizer.ggml.pre", "gpt-2"},
          {"tokenizer.ggml.tokens", tokens},
          {"tokenizer.ggml.token_type", kinds},
          {"tokenizer.ggml.merges", merges}};
}

/// Metadata of a SentencePiece vocabulary: 0 <unk>, 1 <s>, 2 </s>, 3 + b the byte b, then the pieces, whose scores fall
/// in the order given.
inline nlohmann::json sentencepiece_facts(const std::vector<std::pair<std::string, TokenKind>>& pieces,
                                          bool add_space_prefix) {
  std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
  std::vector<int> kinds{2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    tokens.push_back(std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + ">");
    kinds.push_back(6);
  }
  std::vector<double> scores(tokens.size(), 0.0);
  for (const auto& [text, kind] : pieces) {
    tokens.push_back(text);
    kinds.push_back(static_cast<int>(kind));
    scores.push_back(-static_cast<double>(scores.size()));
  }
  return {{"tokenizer.ggml.model", "llama"},      {"tokenizer.ggml.tokens", tokens},
          {"tokenizer.ggml.token_type", kinds},   {"tokenizer.ggml.scores", scores},
          {"tokenizer.ggml.unknown_token_id", 0}, {"tokenizer.ggml.bos_token_id", 1},
          {"tokenizer.ggml.eos_token_id", 2},     {"tokenizer.ggml.add_space_prefix", add_space_prefix}};
}

inline std::shared_ptr<const Tokenizer> gguf_tokenizer(nlohmann::json facts) {
  return Tokenizer::load(FakeFiles(true, "fake.gguf", std::move(facts)));
}

}  // namespace slipring::testing
