// Seeds of what slipring itself writes.
#pragma once

#include <filesystem>

namespace slipring::testing {

void snapshot_seeds(const std::filesystem::path& folder);
void program_seeds(const std::filesystem::path& folder);

}  // namespace slipring::testing
