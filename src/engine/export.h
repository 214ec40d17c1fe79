// Writing a model as a bundle: ONNX files, programs, one file of weights, a manifest. docs/export.md describes it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <slipring/dtype.h>
#include <slipring/model.h>

#include "program/program.h"

namespace slipring {

enum class QuantiseMode : uint8_t {
  eager,  ///< quantise the weights, then trace main and prefill each
  graph   ///< trace main, quantise it, trim it to prefill: for models without a ring
};

struct ExportOptions {
  DType kv_dtype = DType::F32;         ///< of the states: F32, F16 or BF16
  bool embeddings = false;             ///< hidden states in, full caches on every layer, the window as a mask
  std::optional<DType> quantise = {};  ///< Q8_0 or Q4_0
  QuantiseMode mode = QuantiseMode::eager;
  std::filesystem::path drafter = {};  ///< adds inject and draft, and the hidden states that inject takes
  int threads = 0;                     ///< 0: all usable cores
};

/// The programs that an export holds: main, prefill (no logits), score (prefill with all logits), embed
/// (token ids -> hidden states) on the embeddings path, and inject and draft of a drafter.
/// @throws Error{unsupported} for graph mode on a model with rings; Error{mismatch} for another model's drafter
std::vector<Program> make_programs(const Model& model, const ExportOptions& options);

struct ExportedFile {
  std::string name;
  int64_t bytes = 0;
};

/// Writes the bundle. Every file is complete under a temporary name before the first is renamed, the manifest last: an
/// export that fails leaves an older bundle as it was. The folder is made if it is not there.
/// @throws Error{io, unsupported, invalid_argument}
std::vector<ExportedFile> export_model(const Model& model, const ExportOptions& options,
                                       const std::filesystem::path& folder);

}  // namespace slipring
