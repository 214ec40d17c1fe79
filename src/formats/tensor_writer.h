// Writing tensors to a model file one after the other, without holding them all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <slipring/tensor.h>

#include "formats/output_file.h"

namespace slipring {

/// First every tensor is declared, then the data of all of them is appended in the same order, in pieces of any size,
/// then finish(). Until then no file of the target's name is touched.
/// Threads: one at a time.
class TensorWriter {
 public:
  /// @throws as OutputFile
  explicit TensorWriter(const std::filesystem::path& target) : file_(target) {}
  virtual ~TensorWriter() = default;

  /// @throws Error{invalid_argument} for an empty or repeated name, rows that are not whole blocks, a type that the
  /// format has not, or after the first append()
  void declare(std::string name, DType dtype, const Shape& shape);
  /// The next bytes of the tensor whose turn it is. A tensor of zero elements has no turn.
  /// @throws Error{io}; Error{invalid_argument} beyond the last tensor's end
  void append(std::span<const std::byte> bytes);
  /// append() of a whole tensor.
  /// @throws also Error{mismatch} if it is not the tensor whose turn it is
  void append(std::string_view name, const Tensor& tensor);
  /// complete() and commit().
  void finish();
  /// Everything but the target's name: for several files that belong together.
  /// @throws Error{io}; Error{invalid_argument} if data is missing
  void complete();
  /// After complete(). @throws Error{io}; the target is then as it was
  void commit() { file_.commit(); }
  /// The finished file before commit(): OutputFile::temporary().
  std::filesystem::path completed() const { return file_.temporary(); }

 protected:
  struct Declared {
    std::string name;
    DType dtype = DType::F32;
    Shape shape;
    uint64_t bytes = 0;
  };
  const std::vector<Declared>& declared() const noexcept { return declared_; }

  virtual bool has_type(DType dtype) const noexcept = 0;
  std::string where() const { return file_.target().string(); }
  virtual void write_header() = 0;
  virtual void begin_tensor() {}  ///< before a tensor's first byte: padding
  virtual void end_data() {}      ///< after the last byte: padding

  OutputFile file_;

 private:
  void start_data();
  void skip_finished();

  std::vector<Declared> declared_;
  std::unordered_set<std::string> names_;
  bool started_ = false;
  size_t current_ = 0;          // whose turn it is
  uint64_t current_bytes_ = 0;  // of it already appended
};

}  // namespace slipring
