// One model on disk, whatever its format: a GGUF file, or a Hugging Face folder (config.json + safetensors).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <slipring/tensor.h>

namespace slipring {

/// A fact or tensor has one name in Hugging Face folders and another in GGUF. An empty name: that format has none.
/// `hf` config keys may be paths: "rope_parameters/sliding_attention/rope_theta". `gguf` keys are given without the
/// "<architecture>." prefix ("attention.sliding_window"), or with a leading '/' for keys that have none
/// ("/tokenizer.ggml.model"). A leading '/' of an `hf` key likewise addresses the outermost config alone. In tensor
/// names "{}" stands for the layer number.
struct Names {
  std::string_view hf;
  std::string_view gguf;
};

/// Threads: const use from any number of threads.
class ModelFiles {
 public:
  /// Opens a .gguf file (memory-mapped) or a folder. For multi-modal configs the text_config is what the keys address;
  /// what it does not have is looked up in the outermost config.
  /// @throws Error{not_found, bad_file, unsupported, io}; the message names the file and what is wrong with it
  static std::shared_ptr<const ModelFiles> open(const std::filesystem::path& path);
  virtual ~ModelFiles() = default;

  virtual bool is_gguf() const noexcept = 0;
  virtual const std::filesystem::path& path() const noexcept = 0;
  /// GGUF's general.architecture, or config.json's model_type of the outermost config.
  virtual const std::string& architecture() const noexcept = 0;

  // Facts. nullopt: absent or null. @throws Error{bad_file} naming the key where it has another type or is out of
  // range.
  virtual std::optional<int64_t> integer(Names key) const = 0;
  virtual std::optional<double> real(Names key) const = 0;  ///< integers are accepted
  virtual std::optional<bool> boolean(Names key) const = 0;
  virtual std::optional<std::string> text(Names key) const = 0;
  virtual std::optional<std::vector<int64_t>> integers(
      Names key) const = 0;  ///< a scalar counts as a list of one; bools as 0, 1
  virtual std::optional<std::vector<double>> reals(Names key) const = 0;
  virtual std::optional<std::vector<std::string>> texts(Names key) const = 0;
  /// The same without a copy: views that stay valid as long as this object. For vocabularies.
  virtual std::optional<std::vector<std::string_view>> text_views(Names key) const = 0;

  // The same, required. @throws Error{bad_file} "missing key ..." naming file and key.
  int64_t require_integer(Names key, int64_t least, int64_t most) const;
  double require_real(Names key) const;

  /// The tensor, as a view of the mapped file that keeps it mapped; an empty Tensor where there is none. Matrices are
  /// [rows, cols] = [out_features, in_features] in both formats. "model.x" of a
  /// folder is also found as "model.language_model.x" and "language_model.model.x", as multi-modal checkpoints spell
  /// it. A tensor with a dimension of 0 is not empty(): it has a place in the file, and no elements.
  /// @throws Error{io} if the file shrank since it was opened
  virtual Tensor find_tensor(Names name, int64_t layer = -1) const = 0;
  /// @param shape what it must have, else Error{bad_file} with both shapes
  /// @throws Error{bad_file} naming the tensor if it is absent
  Tensor require_tensor(Names name, Shape shape, int64_t layer = -1) const;
  /// Names of all tensors, in file order.
  virtual std::vector<std::string> tensor_names() const = 0;
  /// Gives the file's resident pages behind `tensor` back to the system (they come back when read). A hint; never
  /// fails.
  virtual void release(const Tensor& tensor) const noexcept = 0;
  /// Bytes of all weight files.
  virtual int64_t file_bytes() const noexcept = 0;
};

}  // namespace slipring
