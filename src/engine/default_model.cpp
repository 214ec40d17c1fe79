// Where the embedded default lies: beside the sources in a build tree, below share/ after an install.
#include <dlfcn.h>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <slipring/error.h>
#include <slipring/model.h>

namespace slipring {
namespace {

namespace fs = std::filesystem;

/// Folder of the running program; empty where the system does not tell.
fs::path program_folder() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

/// Folder of the shared library (or program) that this code was linked into; empty where unknown.
fs::path library_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&default_model_path), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  return fs::canonical(info.dli_fname, ignored).parent_path();
}

/// The folders that may hold the models, best first. Paths relative to the program and to the library come first, so
/// that an install can be moved as a whole, and used by other programs through the library.
std::vector<fs::path> model_folders() {
  std::vector<fs::path> folders;
  if (const fs::path bin = program_folder(); !bin.empty()) folders.push_back(bin / SLIPRING_MODELS_FROM_BIN);
  if (const fs::path lib = library_folder(); !lib.empty()) folders.push_back(lib / SLIPRING_MODELS_FROM_LIB);
  folders.emplace_back(SLIPRING_INSTALLED_MODELS);
  folders.emplace_back(SLIPRING_SOURCE_MODELS);
  return folders;
}

fs::path find_model_file(const std::string& name) {
  std::string looked_at;
  for (const fs::path& folder : model_folders()) {
    fs::path file = (folder / "glimmer-tiny" / name).lexically_normal();
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored)) return file;
    looked_at += (looked_at.empty() ? "" : ", ") + file.string();
  }
  throw Error(ErrorCode::not_found, {.where = "embedded default model " + name,
                                     .expected = "it at one of: " + looked_at,
                                     .got = "nothing",
                                     .advice = "install slipring again, or name a model with -m"});
}

}  // namespace

std::filesystem::path default_model_path() {
  return find_model_file("glimmer-tiny-q8_0.gguf");
}

std::filesystem::path default_drafter_path() {
  return find_model_file("glimmer-tiny-dflash-q8_0.gguf");
}

}  // namespace slipring
