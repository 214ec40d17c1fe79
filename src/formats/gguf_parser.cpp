#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <limits>

#include "formats/byte_cursor.h"
#include "formats/gguf.h"
#include "formats/gguf_types.h"

namespace slipring {

using namespace gguf_limits;

namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF", little-endian
constexpr uint32_t kLastType = static_cast<uint32_t>(GgufType::f64);
constexpr std::string_view kAlignmentKey = "general.alignment";
// The least a metadata entry (length, one byte of key, type, one byte of value) and a tensor's entry (length, one byte
// of name, dimension count, type, offset) can take: bounds the counts in the header by the file's size.
constexpr uint64_t kLeastEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 1 + 4 + 4 + 8;

// Bytes of one element; 0 where it varies.
uint64_t fixed_size(GgufType type) noexcept {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::string:
    case GgufType::array:
      return 0;
  }
  return 0;
}

}  // namespace

class GgufParser {
 public:
  GgufParser(std::span<const std::byte> file, const std::string& where)
      : file_(file), where_(where), cursor_(file, where) {}

  GgufHeader parse() {
    const uint64_t tensors = read_preamble();
    for (uint64_t i = 0; i < keys_; ++i) read_entry(i);
    read_alignment();
    for (uint64_t i = 0; i < tensors; ++i) read_tensor(i);
    place_tensors();
    return std::move(header_);
  }

 private:
  // Returns the number of tensors.
  uint64_t read_preamble() {
    if (cursor_.number<uint32_t>("the magic number") != kMagic) {
      throw_bad_file(where_, "another kind of file", "a GGUF file, which begins with 'GGUF'");
    }
    header_.version_ = cursor_.number<uint32_t>("the version");
    if (header_.version_ != 0 && (header_.version_ & 0xFFFFU) == 0) {
      throw_unsupported(where_, "a big-endian file", "little-endian byte order", "convert it for little-endian");
    }
    if (header_.version_ == 1) throw_unsupported(where_, "GGUF version 1", "version 2 or 3", "convert it again");
    if (header_.version_ != 2 && header_.version_ != 3) {
      throw_unsupported(where_, fmt::format("GGUF version {}", header_.version_), "version 2 or 3");
    }
    const uint64_t tensors = read_count("tensor count", kMaxTensors, kLeastTensorBytes);
    keys_ = read_count("metadata key count", kMaxKeys, kLeastEntryBytes);
    return tensors;
  }

  uint64_t read_count(std::string_view what, uint64_t limit, uint64_t least_bytes) {
    const auto count = cursor_.number<uint64_t>(what);
    if (count > limit) {
      throw_bad_file(where_, fmt::format("{} {}", what, count), fmt::format("at most {}", limit));
    }
    if (count > cursor_.left() / least_bytes) {
      throw_bad_file(where_, fmt::format("{} {} in a file of {} bytes", what, count, file_.size()),
                     fmt::format("at least {} bytes for each", least_bytes),
                     "the file is cut short or damaged; fetch it again");
    }
    return count;
  }

  GgufType read_type(std::string_view what) {
    const auto number = cursor_.number<uint32_t>(what);
    if (number > kLastType) {
      throw_bad_file(where_, fmt::format("{} {}", what, number), fmt::format("0 to {}", kLastType));
    }
    return static_cast<GgufType>(number);
  }

  void read_entry(uint64_t index) {
    const std::string_view key = cursor_.string(fmt::format("metadata key {}", index), kMaxKeyBytes);
    if (key.empty()) throw_bad_file(where_, fmt::format("metadata key {} is empty", index), "a name");
    const std::string what = "key " + in_quotes(key);
    GgufValue value;
    value.type = value.element = read_type("the value type of " + what);
    if (value.type == GgufType::array) {
      read_array(value, what, 1);
    } else {
      const uint64_t begin = cursor_.position();
      skip_elements(value.type, 1, what, 0);
      value.bytes = file_.subspan(begin, cursor_.position() - begin);
    }
    if (!header_.entry_index_.emplace(key, header_.entries_.size()).second) {
      throw_bad_file(where_, what + " twice", "each key once");
    }
    header_.entries_.push_back({key, value});
  }

  void read_array(GgufValue& value, const std::string& what, int depth) {
    if (depth > kMaxArrayDepth) {
      throw_bad_file(where_, fmt::format("{}: arrays nested more than {} deep", what, kMaxArrayDepth), "flat arrays");
    }
    value.element = read_type("the element type of " + what);
    value.count = cursor_.number<uint64_t>("the element count of " + what);
    const uint64_t begin = cursor_.position();
    skip_elements(value.element, value.count, what, depth);
    value.bytes = file_.subspan(begin, cursor_.position() - begin);
  }

  // Walks over `count` elements and checks them. Each takes at least one byte, so a count beyond the file ends early.
  void skip_elements(GgufType type, uint64_t count, const std::string& what, int depth) {
    if (const uint64_t size = fixed_size(type); size > 0) {
      if (count > cursor_.left() / size) {
        throw_bad_file(where_,
                       fmt::format("{}: {} elements of {} bytes with {} bytes left", what, count, size, cursor_.left()),
                       "a value inside the file", "the file is cut short or damaged; fetch it again");
      }
      const auto bytes = cursor_.take(count * size, what);
      if (type == GgufType::boolean) check_booleans(bytes, what);
      return;
    }
    for (uint64_t i = 0; i < count; ++i) {
      if (type == GgufType::string) {
        cursor_.string(what, kMaxStringBytes);
      } else {
        GgufValue inner;
        read_array(inner, what, depth + 1);
      }
    }
  }

  void check_booleans(std::span<const std::byte> bytes, const std::string& what) {
    for (const std::byte b : bytes) {
      if (static_cast<unsigned>(b) > 1) {
        throw_bad_file(where_, fmt::format("{}: boolean with value {}", what, static_cast<unsigned>(b)), "0 or 1");
      }
    }
  }

  void read_alignment() {
    const GgufValue* value = header_.find(kAlignmentKey);
    if (value == nullptr) return;
    if (value->type != GgufType::u32) {
      throw_bad_file(where_, fmt::format("key '{}' of type {}", kAlignmentKey, to_string(value->type)), "type u32");
    }
    const auto alignment = load<uint32_t>(value->bytes.data());
    if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment) {
      throw_bad_file(where_, fmt::format("key '{}' = {}", kAlignmentKey, alignment),
                     fmt::format("a power of two from {} to {}", kMinAlignment, kMaxAlignment));
    }
    header_.alignment_ = alignment;
  }

  void read_tensor(uint64_t index) {
    GgufTensor tensor;
    tensor.name = cursor_.string(fmt::format("the name of tensor {}", index), kMaxTensorNameBytes);
    if (tensor.name.empty()) throw_bad_file(where_, fmt::format("tensor {} has an empty name", index), "a name");
    const std::string what = "tensor " + in_quotes(tensor.name);

    const auto rank = cursor_.number<uint32_t>("the dimension count of " + what);
    if (rank > static_cast<uint32_t>(Shape::kMaxRank)) {
      throw_bad_file(where_, fmt::format("{} with {} dimensions", what, rank),
                     fmt::format("at most {}", Shape::kMaxRank));
    }
    std::array<int64_t, Shape::kMaxRank> dims{};
    uint64_t elements = 1;
    for (uint32_t axis = 0; axis < rank; ++axis) {  // innermost first in the file
      const auto dim = cursor_.number<uint64_t>("the dimensions of " + what);
      // Well below what Shape allows, so that bytes (at most 8 an element) stay in 64 bits; a 0 hides no other factor.
      if (__builtin_mul_overflow(elements, std::max<uint64_t>(dim, 1), &elements) || dim > kMaxElements ||
          elements > kMaxElements) {
        throw_bad_file(where_, fmt::format("{}: dimension {} is {}", what, axis, dim),
                       fmt::format("a product of at most {}", kMaxElements));
      }
      dims[rank - 1 - axis] = static_cast<int64_t>(dim);
    }
    tensor.shape = Shape(std::span<const int64_t>(dims.data(), rank));
    tensor.dtype = read_dtype(what);
    const DTypeInfo& facts = info(tensor.dtype);
    if (tensor.shape.cols() % facts.block_elements != 0) {
      throw_bad_file(where_, fmt::format("{} of {} with rows of {}", what, facts.name, tensor.shape.cols()),
                     fmt::format("a multiple of {}", facts.block_elements));
    }
    tensor.bytes = static_cast<uint64_t>(bytes_of(tensor.dtype, tensor.shape.elements()));
    tensor.begin = cursor_.number<uint64_t>("the offset of " + what);  // of the data section, until place_tensors()
    if (tensor.begin % header_.alignment_ != 0) {
      throw_bad_file(where_, fmt::format("{} at offset {}", what, tensor.begin),
                     fmt::format("a multiple of the alignment {}", header_.alignment_));
    }
    if (!header_.tensor_index_.emplace(tensor.name, header_.tensors_.size()).second) {
      throw_bad_file(where_, what + " twice", "each tensor once");
    }
    header_.tensors_.push_back(tensor);
  }

  DType read_dtype(const std::string& what) {
    const auto id = cursor_.number<uint32_t>("the type of " + what);
    if (const auto dtype = dtype_of_gguf_id(id)) return *dtype;
    if (const std::string_view name = unsupported_gguf_type(id); !name.empty()) {
      throw_unsupported(where_, fmt::format("{} of type {}", what, name), "a type that slipring reads",
                        "use another quantisation of the model, such as Q4_K_M");
    }
    throw_bad_file(where_, fmt::format("{} of type {}", what, id), "a tensor type of the format");
  }

  // Makes offsets absolute and checks every tensor's place.
  void place_tensors() {
    const uint64_t mask = header_.alignment_ - 1;
    header_.data_begin_ = (cursor_.position() + mask) & ~mask;
    std::vector<size_t> order(header_.tensors_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [this](size_t a, size_t b) {
      const GgufTensor& left = header_.tensors_[a];
      const GgufTensor& right = header_.tensors_[b];
      // Empty tensors share their offset with a neighbour and come first.
      return std::pair(left.begin, left.bytes) < std::pair(right.begin, right.bytes);
    });
    uint64_t next = 0;  // offset in the data section at which the next tensor must start
    for (const size_t i : order) {
      GgufTensor& tensor = header_.tensors_[i];
      const std::string what = "tensor " + in_quotes(tensor.name);
      if (tensor.begin != next) {
        throw_bad_file(where_, fmt::format("{} at offset {}", what, tensor.begin),
                       fmt::format("offset {}, where the tensor before it ends", next),
                       tensor.begin < next ? "the tensors overlap" : "there is a gap between the tensors");
      }
      uint64_t end = 0;  // from the start of the file; sums of numbers below 2^63 cannot wrap, offsets may be larger
      if (__builtin_add_overflow(header_.data_begin_, tensor.begin, &tensor.begin) ||
          __builtin_add_overflow(tensor.begin, tensor.bytes, &end) || end > file_.size()) {
        throw_bad_file(where_, fmt::format("a file of {} bytes", file_.size()),
                       fmt::format("at least {}, where {} ends", end, what), "the file is cut short; fetch it again");
      }
      next = (end - header_.data_begin_ + mask) & ~mask;
    }
  }

  static constexpr uint64_t kMaxElements = uint64_t{1} << 58;

  std::span<const std::byte> file_;
  const std::string& where_;
  ByteCursor cursor_;
  GgufHeader header_;
  uint64_t keys_ = 0;
};

GgufHeader GgufHeader::parse(std::span<const std::byte> file, const std::string& where) {
  return GgufParser(file, where).parse();
}

}  // namespace slipring
