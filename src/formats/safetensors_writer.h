// Writes safetensors files.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "formats/tensor_writer.h"

namespace slipring {

/// Tensors as TensorWriter says, plain types only. Names and metadata must be UTF-8, else Error{invalid_argument} from
/// the first append() or finish().
class SafetensorsWriter final : public TensorWriter {
 public:
  /// @param metadata texts for "__metadata__"
  explicit SafetensorsWriter(const std::filesystem::path& target, std::map<std::string, std::string> metadata = {})
      : TensorWriter(target), metadata_(std::move(metadata)) {}

 private:
  bool has_type(DType dtype) const noexcept override { return !is_quantised(dtype); }
  void write_header() override;

  std::map<std::string, std::string> metadata_;
};

/// Writes all of them at once. @throws as SafetensorsWriter
void write_safetensors(const std::filesystem::path& target, const std::vector<std::pair<std::string, Tensor>>& tensors);

}  // namespace slipring
