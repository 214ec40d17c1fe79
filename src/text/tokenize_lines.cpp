// For tools/check_tokenizer.py: answers lines {"hex": "68 69", "parse": true} with {"ids": [...], "decoded": "<hex>"}.
// Takes a GGUF file, or a folder with a tokenizer.json (weights are not needed).
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include <slipring/error.h>
#include <slipring/tokenizer.h>

#include "text/fake_files.h"

namespace slipring {
namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string to_hex(const std::string& bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex += digits[static_cast<uint8_t>(c) >> 4];
    hex += digits[static_cast<uint8_t>(c) & 15];
  }
  return hex;
}

nlohmann::json answer(const Tokenizer& tokenizer, const nlohmann::json& question) {
  try {
    const bool parse = question.at("parse").get<bool>();
    const auto ids = tokenizer.encode(from_hex(question.at("hex").get<std::string>()),
                                      parse ? ControlTokens::parse : ControlTokens::as_text);
    return {{"ids", ids}, {"decoded", to_hex(tokenizer.decode(ids, parse))}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

int run(const std::filesystem::path& path) {
  const auto tokenizer = std::filesystem::is_directory(path)
                             ? Tokenizer::load(testing::FakeFiles(false, path, nlohmann::json::object()))
                             : Tokenizer::load(*ModelFiles::open(path));
  std::string line;
  while (std::getline(std::cin, line)) std::cout << answer(*tokenizer, nlohmann::json::parse(line)).dump() << '\n';
  return 0;
}

}  // namespace
}  // namespace slipring

int main(int argc, char** argv) {
  try {
    if (argc != 2) {
      std::cerr << "usage: slipring_tokenize_lines MODEL\n";
      return 2;
    }
    return slipring::run(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
