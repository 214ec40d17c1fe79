#include "formats/model_files.h"

#include <array>
#include <fmt/format.h>
#include <fstream>

#include "formats/format_error.h"
#include "formats/model_files_impl.h"

namespace slipring {
namespace {

std::string key_name(const ModelFiles& files, Names key) {
  if (!files.is_gguf()) return in_quotes(key.hf);
  return in_quotes(key.gguf.starts_with('/') ? std::string(key.gguf.substr(1))
                                             : files.architecture() + "." + std::string(key.gguf));
}

}  // namespace

std::string with_layer(std::string_view name, int64_t layer) {
  std::string out(name);
  if (const size_t at = out.find("{}"); at != std::string::npos) out.replace(at, 2, std::to_string(layer));
  return out;
}

std::shared_ptr<const ModelFiles> ModelFiles::open(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    throw Error(ErrorCode::not_found, {.where = path.string(),
                                       .expected = "a GGUF file or a folder with config.json and safetensors",
                                       .got = "no such file or folder",
                                       .advice = {}});
  }
  if (std::filesystem::is_directory(status)) return open_hf_folder(path);
  if (path.extension() == ".safetensors") {
    throw Error(ErrorCode::invalid_argument, {.where = path.string(),
                                              .expected = "a GGUF file or a folder",
                                              .got = "a safetensors file",
                                              .advice = "give the folder that holds it and config.json"});
  }
  return open_gguf(path);
}

int64_t ModelFiles::require_integer(Names key, int64_t least, int64_t most) const {
  const auto value = integer(key);
  if (!value) throw_bad_file(path().string(), "missing key " + key_name(*this, key), "an integer");
  if (*value < least || *value > most) {
    throw_bad_file(path().string(), fmt::format("{} = {}", key_name(*this, key), *value),
                   fmt::format("{} to {}", least, most));
  }
  return *value;
}

double ModelFiles::require_real(Names key) const {
  const auto value = real(key);
  if (!value) throw_bad_file(path().string(), "missing key " + key_name(*this, key), "a number");
  return *value;
}

Tensor ModelFiles::require_tensor(Names name, Shape shape, int64_t layer) const {
  Tensor tensor = find_tensor(name, layer);
  const std::string shown = in_quotes(with_layer(is_gguf() ? name.gguf : name.hf, layer));
  if (tensor.empty()) throw_bad_file(path().string(), "missing tensor " + shown, "shape " + shape.to_string());
  if (!(tensor.shape() == shape)) {
    throw_bad_file(path().string(), fmt::format("tensor {} of shape {}", shown, tensor.shape().to_string()),
                   "shape " + shape.to_string());
  }
  return tensor;
}

}  // namespace slipring
