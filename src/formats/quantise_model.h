// Rewrites a model file with other tensor types.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "formats/quantise_plan.h"
#include "formats/tensor_writer.h"

namespace slipring {

class ThreadPool;

struct QuantiseOptions {
  int threads = 0;  ///< team size, 1 to 256; 0: the number of usable cores
  /// Called after each tensor with the bytes of source data done so far, of how many, and the tensor's name. May throw
  /// to stop: then no output is left. Empty: no reports.
  std::function<void(int64_t done, int64_t total, std::string_view name)> progress{};
};

struct QuantiseReport {
  int64_t bytes_in = 0;   ///< size of the input file
  int64_t bytes_out = 0;  ///< of the tensors written
  std::vector<TensorChoice> tensors;

  /// Tensors whose type is not what the mix asked for, since their rows do not fit its blocks.
  std::vector<TensorChoice> substitutions() const;
};

/// GGUF to GGUF. Metadata is copied as it is but for "general.file_type" and "general.quantization_version". Tensors
/// that already have the type they shall get are copied bit for bit; others are decoded and encoded anew, those of
/// quantised files as well (what an earlier quantisation lost does not come back). Memory: some megabytes a thread,
/// whatever the model's size; the input is mapped, and its pages are given back tensor by tensor.
/// @param in may be the same file as `out`
/// @param type a name that find_mix() knows
/// @throws Error{invalid_argument, not_found, bad_file, unsupported, io}, Error{non_finite} naming the tensor that
/// holds a NaN or an infinity; `out` is then as it was
QuantiseReport quantise_model(const std::filesystem::path& in, const std::filesystem::path& out, std::string_view type,
                              const QuantiseOptions& options = {});

/// Appends `source` to `writer` as type `to`, which was declared for it, in slices of rows: what quantise_model() does
/// for each tensor, and what converters from other formats do.
/// @throws Error{non_finite} naming the tensor; Error{unsupported} where there is no such conversion; as append()
void append_converted(TensorWriter& writer, std::string_view name, const Tensor& source, DType to, ThreadPool& pool);

}  // namespace slipring
