// JSON from untrusted bytes: config files, safetensors headers, shard lists, tokenizers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace slipring {

struct JsonLimits {
  int64_t max_bytes = int64_t{64} << 20;  ///< of the text; the parsed value takes a small multiple of that
  int max_depth = 64;                     ///< nested objects and arrays
  bool unique_keys = true;                ///< refuse an object that names a key twice; else the last one counts
};

/// Parses one JSON value. @param where the file's name, for errors
/// @throws Error{bad_file} for malformed text with its byte, a limit exceeded, or a repeated key by its name
nlohmann::json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits = {});

/// The same for a file. @throws also Error{not_found, io}
nlohmann::json read_json_file(const std::filesystem::path& path, const JsonLimits& limits = {});

}  // namespace slipring
