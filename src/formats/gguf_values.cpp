#include <limits>

#include "formats/byte_cursor.h"
#include "formats/gguf.h"

namespace slipring {
namespace {

// Calls visit(number) for each element of a numeric value in its own C++ type; false for strings and nested arrays.
template <class Visit>
bool visit_numbers(const GgufValue& value, Visit visit) {
  const auto each = [&]<class T>(T) {
    for (uint64_t i = 0; i < value.count; ++i) visit(load<T>(value.bytes.data() + i * sizeof(T)));
    return true;
  };
  switch (value.element) {
    case GgufType::u8:
    case GgufType::boolean:
      return each(uint8_t{});
    case GgufType::i8:
      return each(int8_t{});
    case GgufType::u16:
      return each(uint16_t{});
    case GgufType::i16:
      return each(int16_t{});
    case GgufType::u32:
      return each(uint32_t{});
    case GgufType::i32:
      return each(int32_t{});
    case GgufType::u64:
      return each(uint64_t{});
    case GgufType::i64:
      return each(int64_t{});
    case GgufType::f32:
      return each(float{});
    case GgufType::f64:
      return each(double{});
    case GgufType::string:
    case GgufType::array:
      return false;
  }
  return false;
}

std::string_view text_at(std::span<const std::byte> bytes, uint64_t& position) {
  const auto length = load<uint64_t>(bytes.data() + position);
  const auto* text = reinterpret_cast<const char*>(bytes.data() + position + sizeof length);
  position += sizeof length + length;
  return {text, length};
}

}  // namespace

std::string_view to_string(GgufType type) noexcept {
  switch (type) {
    case GgufType::u8:
      return "u8";
    case GgufType::i8:
      return "i8";
    case GgufType::u16:
      return "u16";
    case GgufType::i16:
      return "i16";
    case GgufType::u32:
      return "u32";
    case GgufType::i32:
      return "i32";
    case GgufType::f32:
      return "f32";
    case GgufType::boolean:
      return "bool";
    case GgufType::string:
      return "string";
    case GgufType::array:
      return "array";
    case GgufType::u64:
      return "u64";
    case GgufType::i64:
      return "i64";
    case GgufType::f64:
      return "f64";
  }
  return "unknown";
}

const GgufValue* GgufHeader::find(std::string_view key) const noexcept {
  const auto found = entry_index_.find(key);
  return found == entry_index_.end() ? nullptr : &entries_[found->second].value;
}

const GgufTensor* GgufHeader::find_tensor(std::string_view name) const noexcept {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

std::optional<std::vector<int64_t>> as_integers(const GgufValue& value) {
  if (value.element == GgufType::f32 || value.element == GgufType::f64) return std::nullopt;
  std::vector<int64_t> out;
  bool in_range = true;
  const bool numbers = visit_numbers(value, [&](auto number) {
    if constexpr (std::is_same_v<decltype(number), uint64_t>) {
      in_range = in_range && number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    }
    out.push_back(static_cast<int64_t>(number));
  });
  if (!numbers || !in_range) return std::nullopt;
  return out;
}

std::optional<std::vector<double>> as_reals(const GgufValue& value) {
  if (value.element == GgufType::boolean) return std::nullopt;
  std::vector<double> out;
  if (!visit_numbers(value, [&](auto number) { out.push_back(static_cast<double>(number)); })) return std::nullopt;
  return out;
}

std::optional<std::vector<std::string_view>> as_texts(const GgufValue& value) {
  if (value.element != GgufType::string) return std::nullopt;
  std::vector<std::string_view> out;
  out.reserve(value.count);  // each has 8 bytes in the file, checked by the parser
  uint64_t position = 0;
  for (uint64_t i = 0; i < value.count; ++i) out.push_back(text_at(value.bytes, position));
  return out;
}

std::optional<int64_t> as_integer(const GgufValue& value) {
  if (value.type == GgufType::array || value.type == GgufType::boolean) return std::nullopt;
  const auto all = as_integers(value);
  return all ? std::optional(all->front()) : std::nullopt;
}

std::optional<double> as_real(const GgufValue& value) {
  if (value.type == GgufType::array) return std::nullopt;
  const auto all = as_reals(value);
  return all ? std::optional(all->front()) : std::nullopt;
}

std::optional<bool> as_boolean(const GgufValue& value) {
  if (value.type != GgufType::boolean) return std::nullopt;
  return load<uint8_t>(value.bytes.data()) != 0;
}

std::optional<std::string_view> as_text(const GgufValue& value) {
  if (value.type != GgufType::string) return std::nullopt;
  uint64_t position = 0;
  return text_at(value.bytes, position);
}

}  // namespace slipring
