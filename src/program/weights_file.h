// The weights of an exported bundle: one safetensors file that the ONNX files and the programs share.
#pragma once

#include <filesystem>
#include <span>

#include "formats/safetensors_writer.h"
#include "kernels/thread_pool.h"
#include "program/program.h"
#include "program/weight_parts.h"

namespace slipring {

/// Name of the file in a bundle.
inline constexpr const char* kWeightsFile = "model.safetensors";

/// Writes every weight that the programs use, once, and says where each part lies in a file called kWeightsFile.
/// Memory: one row at a time. The writer is complete() then, for the caller to commit().
/// @throws Error{io}; Error{internal} if two programs mean different weights by one name
WeightPlaces write_weights(std::span<const Program* const> programs, SafetensorsWriter& writer);

/// Reads a bundle's weights back, for programs that were read from it.
class WeightsFile {
 public:
  /// @throws as SafetensorsFile::open()
  WeightsFile(const std::filesystem::path& folder, ThreadPool& pool);
  ~WeightsFile();

  /// @throws Error{bad_file} naming the part that is missing or has another type or shape, or that was asked for before
  /// in another form
  std::shared_ptr<const Linear> linear(const std::string& name, DType dtype, int64_t rows, int64_t cols, bool bias,
                                       bool fine_activations);
  std::shared_ptr<const Norm> norm(const std::string& name, int64_t size);
  Tensor vector(const std::string& name, int64_t size);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slipring
