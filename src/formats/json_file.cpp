#include "formats/json_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "formats/format_error.h"
#include "formats/json_check.h"
#include "formats/mapped_file.h"

namespace slipring {

nlohmann::json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    throw_bad_file(where, fmt::format("JSON of {} bytes", text.size()), fmt::format("at most {}", limits.max_bytes));
  }
  const JsonShape shape = check_json(text, {.max_depth = limits.max_depth, .unique_keys = limits.unique_keys});
  if (shape.too_deep) {
    throw_bad_file(where, fmt::format("JSON nested more than {} deep", limits.max_depth), "a flatter value");
  }
  if (shape.repeated_key) throw_bad_file(where, "key " + in_quotes(*shape.repeated_key) + " twice", "once");
  using nlohmann::json;
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    throw_bad_file(where, fmt::format("malformed JSON near byte {}", error.byte), "one JSON value in UTF-8");
  } catch (const json::exception&) {
    throw_bad_file(where, "JSON with a number that no double can hold", "finite numbers");
  }
}

nlohmann::json read_json_file(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json(MappedFile::open(path)->text(), path.string(), limits);
}

}  // namespace slipring
