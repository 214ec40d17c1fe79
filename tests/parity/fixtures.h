// The model folders that parity tests read: every folder with a case.safetensors under $SLIPRING_FIXTURES, or
// tests/data.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include <slipring/tensor.h>

namespace slipring::testing {

std::filesystem::path fixture_root();

/// Where tests find the files that they name: fixture_root() if all of them are there, else tests/data.
std::filesystem::path root_with(std::initializer_list<std::filesystem::path> names);

/// Folders with weights (model.safetensors, config.json) and a case.safetensors with logits, sorted. Drafters are left
/// out.
std::vector<std::filesystem::path> target_folders();

/// The same without glimmer-tiny, whose window of 128 makes it long, for what the others show as well.
std::vector<std::filesystem::path> small_target_folders();

/// A file's or folder's name as GoogleTest takes it for a test: no ending, '_' for whatever is no letter or digit.
std::string test_name(const std::filesystem::path& path);

/// All tensors of a safetensors file.
class TensorFile {
 public:
  explicit TensorFile(const std::filesystem::path& path);
  /// @throws Error{not_found}
  const Tensor& operator[](const std::string& name) const;
  bool has(const std::string& name) const { return tensors_.contains(name); }
  std::vector<int32_t> ids(const std::string& name) const;

 private:
  std::filesystem::path path_;
  std::map<std::string, Tensor> tensors_;
};

/// Directory of published models, or empty where $SLIPRING_MODELS is not set.
std::filesystem::path published_models();

}  // namespace slipring::testing
