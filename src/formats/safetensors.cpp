#include "formats/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>

#include "formats/byte_cursor.h"
#include "formats/json_file.h"

namespace slipring {
namespace {

using nlohmann::json;

// Spelled exactly as the format does; it knows no quantised types.
std::optional<DType> plain_dtype(std::string_view name) {
  const auto dtype = dtype_from_name(name);
  if (!dtype || is_quantised(*dtype) || to_string(*dtype) != name) return std::nullopt;
  return dtype;
}

DType read_dtype(const json& value, const std::string& where, const std::string& what) {
  if (!value.is_string()) throw_bad_file(where, what + ": dtype is no string", "a type's name");
  const auto& name = value.get_ref<const std::string&>();
  if (const auto dtype = plain_dtype(name)) return *dtype;
  constexpr std::array<std::string_view, 11> kUnsupported = {
      "U16", "U32", "U64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "C64", "F6_E2M3", "F6_E3M2", "F8_E4M3FNUZ"};
  if (std::find(kUnsupported.begin(), kUnsupported.end(), name) != kUnsupported.end()) {
    throw_unsupported(where, what + " of type " + in_quotes(name), "F32, F16, BF16, F64, I8, I16, I32, I64, U8 or BOOL",
                      "convert the weights to BF16");
  }
  throw_bad_file(where, what + " of type " + in_quotes(name), "a type of the format, in upper case");
}

uint64_t read_unsigned(const json& value, const std::string& where, const std::string& what) {
  if (!value.is_number_unsigned()) throw_bad_file(where, what + " is no whole number", "0 or more");
  return value.get<uint64_t>();
}

// `data_begin`: where the header ends.
SafetensorsEntry read_entry(const std::string& name, const json& value, uint64_t data_begin, uint64_t file_bytes,
                            const std::string& where) {
  const std::string what = "tensor " + in_quotes(name);
  if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets")) {
    throw_bad_file(where, what + " without dtype, shape or data_offsets", "all three");
  }
  SafetensorsEntry entry;
  entry.name = name;
  entry.dtype = read_dtype(value["dtype"], where, what);
  const json& shape = value["shape"];
  if (!shape.is_array() || shape.size() > safetensors_limits::kMaxRank) {
    throw_bad_file(where, what + ": shape is no short list",
                   fmt::format("at most {} dimensions", safetensors_limits::kMaxRank));
  }
  uint64_t bytes = static_cast<uint64_t>(info(entry.dtype).block_bytes);
  bool empty = false;
  constexpr uint64_t kMaxBytes = uint64_t{1} << 61;
  for (const json& dim : shape) {
    const uint64_t size = read_unsigned(dim, where, what + ": a dimension");
    if (size > kMaxBytes || __builtin_mul_overflow(bytes, std::max<uint64_t>(size, 1), &bytes) || bytes > kMaxBytes) {
      throw_bad_file(where, fmt::format("{}: dimension {}", what, size), "a tensor that fits into memory");
    }
    entry.dims.push_back(static_cast<int64_t>(size));
    empty = empty || size == 0;
  }
  if (empty) bytes = 0;
  const json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) throw_bad_file(where, what + ": odd data_offsets", "two numbers");
  const uint64_t begin = read_unsigned(offsets[0], where, what + ": data_offsets");
  const uint64_t end = read_unsigned(offsets[1], where, what + ": data_offsets");
  if (end < begin || end - begin != bytes) {
    throw_bad_file(where, fmt::format("{} at [{}, {})", what, begin, end),
                   fmt::format("{} bytes, as dtype and shape say", bytes));
  }
  if (end > file_bytes - data_begin) {
    throw_bad_file(where, fmt::format("a file with {} bytes of data", file_bytes - data_begin),
                   fmt::format("at least {}, where {} ends", end, what), "the file is cut short; fetch it again");
  }
  entry.begin = data_begin + begin;
  entry.bytes = bytes;
  return entry;
}

void check_cover(const std::vector<SafetensorsEntry>& entries, uint64_t data_begin, uint64_t file_bytes,
                 const std::string& where) {
  uint64_t next = data_begin;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != next) {
      throw_bad_file(where,
                     fmt::format("tensor {} begins at data byte {}", in_quotes(entry.name), entry.begin - data_begin),
                     fmt::format("{}, where the one before it ends", next - data_begin),
                     entry.begin < next ? "the tensors overlap" : "there is a gap between the tensors");
    }
    next += entry.bytes;
  }
  if (next != file_bytes) {
    throw_bad_file(where, fmt::format("{} bytes after the last tensor", file_bytes - next), "none");
  }
}

}  // namespace

SafetensorsHeader SafetensorsHeader::parse(std::span<const std::byte> file, const std::string& where) {
  ByteCursor cursor(file, where);
  const auto length = cursor.number<uint64_t>("the header's length");
  if (length > safetensors_limits::kMaxHeaderBytes) {
    throw_bad_file(where, fmt::format("a header of {} bytes", length),
                   fmt::format("at most {}", safetensors_limits::kMaxHeaderBytes), "is this a safetensors file?");
  }
  const auto text = cursor.take(length, "the header");
  const uint64_t data_begin = cursor.position();
  const json header = parse_json({reinterpret_cast<const char*>(text.data()), text.size()}, where,
                                 {.max_bytes = safetensors_limits::kMaxHeaderBytes, .max_depth = 8});
  if (!header.is_object()) throw_bad_file(where, "a header that is no JSON object", "an object of tensors");

  SafetensorsHeader out;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) throw_bad_file(where, "'__metadata__' is no object", "texts by name");
      for (const auto& [key, fact] : value.items()) {
        if (!fact.is_string()) throw_bad_file(where, "metadata " + in_quotes(key) + " is no text", "a text");
        out.metadata.emplace(key, fact.get<std::string>());
      }
      continue;
    }
    out.entries.push_back(read_entry(name, value, data_begin, file.size(), where));
  }
  std::sort(out.entries.begin(), out.entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.bytes, a.name) < std::tie(b.begin, b.bytes, b.name);
  });
  check_cover(out.entries, data_begin, file.size(), where);
  return out;
}

std::shared_ptr<const SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  auto file = std::make_shared<SafetensorsFile>();
  file->file_ = MappedFile::open(path);
  file->header_ = SafetensorsHeader::parse(file->file_->bytes(), path.string());
  const auto& entries = file->header_.entries;
  for (size_t i = 0; i < entries.size(); ++i) file->index_.emplace(entries[i].name, i);
  return file;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.entries[found->second];
}

Tensor SafetensorsFile::tensor(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  const std::string where = file_->path().string();
  if (entry == nullptr) {
    throw Error(ErrorCode::not_found,
                {.where = where, .expected = "tensor " + in_quotes(name), .got = "no such tensor", .advice = {}});
  }
  if (entry->dims.size() > static_cast<size_t>(Shape::kMaxRank)) {
    throw_unsupported(where, fmt::format("tensor {} with {} dimensions", in_quotes(name), entry->dims.size()),
                      fmt::format("at most {}", Shape::kMaxRank));
  }
  file_->check_size();
  const std::byte* data = file_->bytes().data() + entry->begin;
  const Shape shape(std::span<const int64_t>(entry->dims));
  const auto element = static_cast<uintptr_t>(info(entry->dtype).block_bytes);
  if (reinterpret_cast<uintptr_t>(data) % element == 0) return Tensor::view(entry->dtype, shape, data, file_);
  Tensor copy(entry->dtype, shape);
  if (entry->bytes > 0) std::memcpy(copy.raw(), data, entry->bytes);
  return copy;
}

}  // namespace slipring
