#include "formats/tensor_writer.h"

#include <algorithm>
#include <fmt/format.h>

#include "formats/format_error.h"

namespace slipring {
namespace {

[[noreturn]] void throw_misuse(std::string where, std::string got, std::string expected) {
  throw Error(ErrorCode::invalid_argument,
              {.where = std::move(where), .expected = std::move(expected), .got = std::move(got), .advice = {}});
}

}  // namespace

void TensorWriter::declare(std::string name, DType dtype, const Shape& shape) {
  const std::string what = "tensor " + in_quotes(name);
  if (started_) throw_misuse(where(), what + " declared after the first data", "all declarations first");
  if (name.empty()) throw_misuse(where(), "a tensor without a name", "a name");
  if (!has_type(dtype)) {
    throw_misuse(where(), fmt::format("{} of type {}", what, to_string(dtype)), "a type that this format has");
  }
  if (shape.cols() % info(dtype).block_elements != 0) {
    throw_misuse(where(), fmt::format("{} of {} with rows of {}", what, to_string(dtype), shape.cols()),
                 fmt::format("a multiple of {}", info(dtype).block_elements));
  }
  if (!names_.insert(name).second) throw_misuse(where(), what + " declared twice", "each tensor once");
  declared_.push_back({std::move(name), dtype, shape, static_cast<uint64_t>(bytes_of(dtype, shape.elements()))});
}

void TensorWriter::start_data() {
  if (started_) return;
  started_ = true;
  write_header();
  skip_finished();
}

void TensorWriter::skip_finished() {
  while (current_ < declared_.size() && current_bytes_ == declared_[current_].bytes) {
    ++current_;
    current_bytes_ = 0;
  }
}

void TensorWriter::append(std::span<const std::byte> bytes) {
  start_data();
  while (!bytes.empty()) {
    if (current_ == declared_.size()) throw_misuse(where(), "data after the last tensor", "what was declared");
    if (current_bytes_ == 0) begin_tensor();
    const auto piece = bytes.first(std::min<uint64_t>(bytes.size(), declared_[current_].bytes - current_bytes_));
    file_.write(piece);
    current_bytes_ += piece.size();
    bytes = bytes.subspan(piece.size());
    skip_finished();
  }
}

void TensorWriter::append(std::string_view name, const Tensor& tensor) {
  start_data();
  if (tensor.elements() > 0) {
    const bool fits = current_ < declared_.size() && current_bytes_ == 0 && declared_[current_].name == name &&
                      declared_[current_].dtype == tensor.dtype() && declared_[current_].shape == tensor.shape();
    if (!fits) {
      throw Error(ErrorCode::mismatch, {.where = where(),
                                        .expected = "the tensor declared next, with its type and shape",
                                        .got = fmt::format("{} {} {}", in_quotes(name), to_string(tensor.dtype()),
                                                           tensor.shape().to_string()),
                                        .advice = {}});
    }
    append(tensor.span());
  }
}

void TensorWriter::complete() {
  start_data();
  if (current_ != declared_.size()) {
    throw_misuse(where(), fmt::format("{} bytes of tensor {}", current_bytes_, in_quotes(declared_[current_].name)),
                 fmt::format("{} bytes", declared_[current_].bytes));
  }
  end_data();
  file_.complete();
}

void TensorWriter::finish() {
  complete();
  commit();
}

}  // namespace slipring
