// A first walk over JSON text that builds nothing, to bound what the parser behind it is given.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace slipring {

struct JsonBounds {
  int max_depth = 64;          ///< objects and arrays open at the same time
  size_t max_keys = SIZE_MAX;  ///< of one object. nlohmann::ordered_json looks through all of them for each one
  bool unique_keys = false;    ///< whether repeated_key is looked for
};

struct JsonShape {
  bool too_deep = false;
  bool too_many_keys = false;
  std::optional<std::string> repeated_key;

  bool fits() const noexcept { return !too_deep && !too_many_keys && !repeated_key; }
};

namespace json_check {

class Walk {
 public:
  explicit Walk(const JsonBounds& bounds) : bounds_(bounds) {}
  const JsonShape& shape() const noexcept { return shape_; }

  // What nlohmann::json::sax_parse() calls; false ends the walk.
  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(int64_t) { return true; }
  bool number_unsigned(uint64_t) { return true; }
  bool number_float(double, const std::string&) { return true; }
  bool string(std::string&) { return true; }
  bool binary(std::vector<uint8_t>&) { return true; }
  bool start_object(size_t) { return open(); }
  bool start_array(size_t) { return open(); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    Level& level = open_.back();
    if (++level.count > bounds_.max_keys) shape_.too_many_keys = true;
    if (bounds_.unique_keys && !level.names.insert(name).second) shape_.repeated_key = name;
    return shape_.fits();
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) { return false; }

 private:
  struct Level {
    size_t count = 0;
    std::unordered_set<std::string> names;
  };
  bool open() {
    open_.emplace_back();
    if (open_.size() > static_cast<size_t>(bounds_.max_depth)) shape_.too_deep = true;
    return shape_.fits();
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  JsonBounds bounds_;
  JsonShape shape_;
  std::vector<Level> open_;
};

}  // namespace json_check

/// Where the text goes past the bounds. Text that is no JSON ends the walk: what is wrong with it the parser says.
/// In linear time. A callback to the parser instead would make it look through a list again for each object in it.
inline JsonShape check_json(std::string_view text, const JsonBounds& bounds) {
  json_check::Walk walk(bounds);
  nlohmann::json::sax_parse(text, &walk);
  return walk.shape();
}

}  // namespace slipring
