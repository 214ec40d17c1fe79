// The header of a GGUF file, checked: metadata values and tensor places, all as views of the file's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <slipring/tensor.h>

namespace slipring {

/// Limits of what is read. Larger than any published file; they bound the work that a hostile header can cause.
namespace gguf_limits {
inline constexpr uint64_t kMaxTensors = 1U << 20;
inline constexpr uint64_t kMaxKeys = 1U << 20;
inline constexpr uint64_t kMaxKeyBytes = 65535;       ///< the specification's own
inline constexpr uint64_t kMaxTensorNameBytes = 255;  ///< the specification says 64; some converters write more
inline constexpr uint64_t kMaxStringBytes = 1U << 28;
inline constexpr uint64_t kMinAlignment = 8;  ///< the specification: a multiple of 8
inline constexpr uint64_t kMaxAlignment = 1U << 20;
inline constexpr uint64_t kDefaultAlignment = 32;
inline constexpr int kMaxArrayDepth = 4;
}  // namespace gguf_limits

/// Value types with the numbers of the format.
enum class GgufType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12
};
std::string_view to_string(GgufType type) noexcept;

/// One metadata value: a view of its bytes, already known to be whole.
struct GgufValue {
  GgufType type = GgufType::u8;
  GgufType element = GgufType::u8;  ///< of an array; else equal to type
  uint64_t count = 1;               ///< elements of an array; else 1
  /// The elements as stored. Strings keep their 64-bit lengths in front; a scalar string too.
  std::span<const std::byte> bytes;
};

struct GgufTensor {
  std::string_view name;
  DType dtype = DType::F32;
  Shape shape;         ///< outermost first: the reverse of the file's order
  uint64_t begin = 0;  ///< first byte, from the start of the file
  uint64_t bytes = 0;
};

/// A parsed header. Views stay valid as long as the bytes that were parsed.
class GgufHeader {
 public:
  /// Reads and checks everything but the tensors' data: magic, version 2 or 3 (little-endian), counts against the
  /// bytes that are left, key and tensor names (not empty, not twice), value types, booleans, alignment, tensor types,
  /// whole blocks per row, and for each tensor that it starts aligned, follows the one before without overlap or gap
  /// (tensors may come in any order) and ends inside the file.
  /// Tensors with a dimension of 0 are allowed and hold no bytes. Bytes after the last tensor are allowed and ignored:
  /// the format knows no total length, writers pad differently, and other readers accept them.
  /// Memory: proportional to the number of keys and tensors, at most a constant times the file's size.
  /// @param where the file's name, for errors
  /// @throws Error{bad_file, unsupported} naming the field, with the numbers
  static GgufHeader parse(std::span<const std::byte> file, const std::string& where);

  uint32_t version() const noexcept { return version_; }
  uint64_t alignment() const noexcept { return alignment_; }
  uint64_t data_begin() const noexcept { return data_begin_; }  ///< offset of the tensor data in the file

  struct Entry {
    std::string_view key;
    GgufValue value;
  };
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  const std::vector<GgufTensor>& tensors() const noexcept { return tensors_; }
  const GgufValue* find(std::string_view key) const noexcept;
  const GgufTensor* find_tensor(std::string_view name) const noexcept;

 private:
  friend class GgufParser;
  uint32_t version_ = 0;
  uint64_t alignment_ = gguf_limits::kDefaultAlignment;
  uint64_t data_begin_ = 0;
  std::vector<Entry> entries_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> entry_index_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
};

// Values as C++ types. nullopt where the value has another type; the caller knows the key and says so.
std::optional<int64_t> as_integer(const GgufValue& value);  ///< any integer type within int64
std::optional<double> as_real(const GgufValue& value);      ///< floats and integers
std::optional<bool> as_boolean(const GgufValue& value);
std::optional<std::string_view> as_text(const GgufValue& value);
// Arrays of those, whatever width their elements have; a scalar counts as a list of one.
std::optional<std::vector<int64_t>> as_integers(const GgufValue& value);  ///< bools as 0, 1
std::optional<std::vector<double>> as_reals(const GgufValue& value);
std::optional<std::vector<std::string_view>> as_texts(const GgufValue& value);

/// The format's number of a tensor type; nullopt for types that GGUF has not (U8, BOOL).
std::optional<uint32_t> gguf_type_id(DType dtype) noexcept;

}  // namespace slipring
