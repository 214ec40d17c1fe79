// Where the embedded default lies: beside the sources in a build tree, below share/ after an install.
#include <fmt/format.h>
#include <system_error>
#include <vector>

#include <slipring/error.h>
#include <slipring/model.h>

namespace slipring {
namespace {

std::filesystem::path find(const std::string& name) {
  namespace fs = std::filesystem;
  std::vector<fs::path> places;
  std::error_code ignored;
  const fs::path executable = fs::read_symlink("/proc/self/exe", ignored);
  if (!executable.empty()) {
    places.push_back(executable.parent_path().parent_path() / "share/slipring/models/glimmer-tiny" / name);
  }
  places.push_back(fs::path(SLIPRING_INSTALLED_MODELS) / "glimmer-tiny" / name);
  places.push_back(fs::path(SLIPRING_SOURCE_MODELS) / "glimmer-tiny" / name);
  for (const fs::path& place : places) {
    if (fs::exists(place, ignored)) return place;
  }
  std::string joined;
  for (const fs::path& place : places) joined += (joined.empty() ? "" : ", ") + place.string();
  throw Error(ErrorCode::not_found, {.where = "embedded default model " + name,
                                     .expected = "it at one of: " + joined,
                                     .got = "nothing",
                                     .advice = "install slipring again, or name a model with -m"});
}

}  // namespace

std::filesystem::path default_model_path() {
  return find("glimmer-tiny-q8_0.gguf");
}
std::filesystem::path default_drafter_path() {
  return find("glimmer-tiny-dflash-q8_0.gguf");
}

}  // namespace slipring
