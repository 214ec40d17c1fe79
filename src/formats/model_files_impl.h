// The two kinds of ModelFiles, and what they share.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "formats/model_files.h"

namespace slipring {

std::shared_ptr<const ModelFiles> open_gguf(const std::filesystem::path& path);
std::shared_ptr<const ModelFiles> open_hf_folder(const std::filesystem::path& folder);

/// `name` with "{}" replaced by the layer number.
std::string with_layer(std::string_view name, int64_t layer);

}  // namespace slipring
