#include "formats/json_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "formats/format_error.h"
#include "formats/mapped_file.h"

namespace slipring {

nlohmann::json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    throw_bad_file(where, fmt::format("JSON of {} bytes", text.size()), fmt::format("at most {}", limits.max_bytes));
  }
  using nlohmann::json;
  std::vector<std::unordered_set<std::string>> open_objects;
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    const bool opens = event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth >= limits.max_depth) {
      throw_bad_file(where, fmt::format("JSON nested more than {} deep", limits.max_depth), "a flatter value");
    }
    if (!limits.unique_keys) return true;
    if (event == json::parse_event_t::object_start) {
      open_objects.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      open_objects.pop_back();
    } else if (event == json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!open_objects.back().insert(key).second) throw_bad_file(where, "key " + in_quotes(key) + " twice", "once");
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), check);
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
