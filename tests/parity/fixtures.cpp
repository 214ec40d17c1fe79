#include "fixtures.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include <slipring/error.h>

#include "formats/safetensors.h"

namespace slipring::testing {

namespace fs = std::filesystem;

fs::path fixture_root() {
  const char* chosen = std::getenv("SLIPRING_FIXTURES");
  return chosen != nullptr ? fs::path(chosen) : fs::path(SLIPRING_SOURCE_DIR) / "tests/data";
}

fs::path root_with(std::initializer_list<fs::path> names) {
  const fs::path chosen = fixture_root();
  const bool whole =
      std::all_of(names.begin(), names.end(), [&](const fs::path& name) { return fs::exists(chosen / name); });
  return whole ? chosen : fs::path(SLIPRING_SOURCE_DIR) / "tests/data";
}

std::vector<fs::path> target_folders() {
  std::vector<fs::path> folders;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(fixture_root(), problem)) {
    const fs::path& folder = entry.path();
    if (!fs::exists(folder / "case.safetensors") || !fs::exists(folder / "model.safetensors")) continue;
    if (TensorFile(folder / "case.safetensors").has("logits")) folders.push_back(folder);
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::vector<fs::path> small_target_folders() {
  auto folders = target_folders();
  std::erase_if(folders, [](const fs::path& folder) { return folder.filename() == "glimmer-tiny"; });
  return folders;
}

std::string test_name(const fs::path& path) {
  std::string name = path.stem().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

TensorFile::TensorFile(const fs::path& path) : path_(path) {
  const auto file = SafetensorsFile::open(path);
  for (const auto& entry : file->entries()) tensors_[entry.name] = file->tensor(entry.name);
}

const Tensor& TensorFile::operator[](const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  throw Error(ErrorCode::not_found,
              {.where = path_.string(), .expected = "tensor " + name, .got = "none", .advice = {}});
}

std::vector<int32_t> TensorFile::ids(const std::string& name) const {
  const Tensor& tensor = (*this)[name];
  return {tensor.data<int32_t>(), tensor.data<int32_t>() + tensor.elements()};
}

fs::path published_models() {
  const char* chosen = std::getenv("SLIPRING_MODELS");
  return chosen != nullptr ? fs::path(chosen) : fs::path();
}

}  // namespace slipring::testing
