#include "formats/gguf_writer.h"

#include "formats/format_error.h"

namespace slipring {
namespace {

[[noreturn]] void throw_bad_key(std::string where, std::string got) {
  throw Error(ErrorCode::invalid_argument, {.where = std::move(where),
                                            .expected = "each key once, with a name, before the data",
                                            .got = std::move(got),
                                            .advice = {}});
}

}  // namespace

void GgufWriter::add_key(std::string_view key, GgufType type) {
  if (header_written_ || key.empty() || key.size() > gguf_limits::kMaxKeyBytes ||
      !keys_.insert(std::string(key)).second) {
    throw_bad_key(where(), "key " + in_quotes(key));
  }
  add(uint64_t{key.size()});
  metadata_.append(key);
  add(static_cast<uint32_t>(type));
}

void GgufWriter::add_array_key(std::string_view key, GgufType element, uint64_t count) {
  add_key(key, GgufType::array);
  add(static_cast<uint32_t>(element));
  add(count);
}

void GgufWriter::set_u32(std::string_view key, uint32_t value) {
  add_key(key, GgufType::u32);
  add(value);
}

void GgufWriter::set_f32(std::string_view key, float value) {
  add_key(key, GgufType::f32);
  add(value);
}

void GgufWriter::set_bool(std::string_view key, bool value) {
  add_key(key, GgufType::boolean);
  add(static_cast<uint8_t>(value));
}

void GgufWriter::set_text(std::string_view key, std::string_view value) {
  add_key(key, GgufType::string);
  add(uint64_t{value.size()});
  metadata_.append(value);
}

void GgufWriter::set_u32s(std::string_view key, std::span<const uint32_t> values) {
  add_array_key(key, GgufType::u32, values.size());
  for (const uint32_t value : values) add(value);
}

void GgufWriter::set_i32s(std::string_view key, std::span<const int32_t> values) {
  add_array_key(key, GgufType::i32, values.size());
  for (const int32_t value : values) add(value);
}

void GgufWriter::set_f32s(std::string_view key, std::span<const float> values) {
  add_array_key(key, GgufType::f32, values.size());
  for (const float value : values) add(value);
}

void GgufWriter::set_bools(std::string_view key, std::span<const bool> values) {
  add_array_key(key, GgufType::boolean, values.size());
  for (const bool value : values) add(static_cast<uint8_t>(value));
}

void GgufWriter::set_texts(std::string_view key, std::span<const std::string> values) {
  add_array_key(key, GgufType::string, values.size());
  for (const std::string& value : values) {
    add(uint64_t{value.size()});
    metadata_.append(value);
  }
}

void GgufWriter::copy(std::string_view key, const GgufValue& value) {
  if (key == "general.alignment") return;
  if (value.type == GgufType::array) {
    add_array_key(key, value.element, value.count);
  } else {
    add_key(key, value.type);
  }
  metadata_.append(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
}

void GgufWriter::write_header() {
  header_written_ = true;
  std::string preamble = "GGUF";
  const auto put = [](std::string& out, auto value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  put(preamble, uint32_t{3});
  put(preamble, uint64_t{declared().size()});
  put(preamble, uint64_t{keys_.size()});
  file_.write(preamble);
  file_.write(metadata_);
  metadata_.clear();

  std::string infos;
  uint64_t offset = 0;
  constexpr uint64_t kMask = gguf_limits::kDefaultAlignment - 1;
  for (const Declared& tensor : declared()) {
    put(infos, uint64_t{tensor.name.size()});
    infos += tensor.name;
    put(infos, static_cast<uint32_t>(tensor.shape.rank()));
    for (int axis = tensor.shape.rank() - 1; axis >= 0; --axis) put(infos, tensor.shape[axis]);
    put(infos, *gguf_type_id(tensor.dtype));  // declare() checked that it is there
    put(infos, offset);
    offset = (offset + tensor.bytes + kMask) & ~kMask;
  }
  file_.write(infos);
  file_.pad(gguf_limits::kDefaultAlignment);
}

}  // namespace slipring
