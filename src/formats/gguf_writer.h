// Writes GGUF v3 files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>

#include "formats/gguf.h"
#include "formats/tensor_writer.h"

namespace slipring {

/// Metadata first (set_*, copy), tensors as TensorWriter says. Keys keep their order.
/// Every set_* and copy throws Error{invalid_argument} for an empty or repeated key or after the first data.
class GgufWriter final : public TensorWriter {
 public:
  using TensorWriter::TensorWriter;

  void set_u32(std::string_view key, uint32_t value);
  void set_f32(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_text(std::string_view key, std::string_view value);
  void set_u32s(std::string_view key, std::span<const uint32_t> values);
  void set_i32s(std::string_view key, std::span<const int32_t> values);
  void set_f32s(std::string_view key, std::span<const float> values);
  void set_bools(std::string_view key, std::span<const bool> values);
  void set_texts(std::string_view key, std::span<const std::string> values);
  /// A value of another file, as it is. "general.alignment" is left out: this writer uses the default of 32.
  void copy(std::string_view key, const GgufValue& value);

 private:
  bool has_type(DType dtype) const noexcept override { return gguf_type_id(dtype).has_value(); }
  void write_header() override;
  void begin_tensor() override { file_.pad(gguf_limits::kDefaultAlignment); }
  void end_data() override { file_.pad(gguf_limits::kDefaultAlignment); }

  void add_key(std::string_view key, GgufType type);
  void add_array_key(std::string_view key, GgufType element, uint64_t count);
  template <class T>
  void add(T value) {
    metadata_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  std::string metadata_;
  std::unordered_set<std::string> keys_;
  bool header_written_ = false;
};

}  // namespace slipring
