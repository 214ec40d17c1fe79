#include "kernels/targets.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <slipring/error.h>

namespace slipring {
namespace {

struct Target {
  std::string name;
  int64_t bit;
};

/// Targets compiled into this library and supported by the machine, best first.
const std::vector<Target>& all_targets() {
  static const std::vector<Target> targets = [] {
    hwy::SetSupportedTargetsForTest(0);
    std::vector<Target> found;
    for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
      const int64_t bit = left & -left;
      std::string name = hwy::TargetName(bit);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      found.push_back({bit == HWY_STATIC_TARGET ? "scalar" : name, bit});
    }
    return found;
  }();
  return targets;
}

/// The index in all_targets() that is in use; applies SLIPRING_TARGET on first use.
size_t& chosen();

void choose(size_t index) {
  // The better targets stay supported by the machine, so they are taken out rather than the wanted one left alone:
  // Highway falls back to the next best for code that was not compiled for the wanted one.
  int64_t mask = 0;
  for (size_t i = index; i < all_targets().size(); ++i) mask |= all_targets()[i].bit;
  hwy::SetSupportedTargetsForTest(mask);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

size_t index_of(std::string_view name, std::string_view where) {
  if (name.empty()) return 0;
  const auto& targets = all_targets();
  const auto found = std::find_if(targets.begin(), targets.end(), [&](const Target& t) { return t.name == name; });
  if (found == targets.end()) {
    throw Error(ErrorCode::invalid_argument,
                {.where = std::string(where),
                 .expected = fmt::format("one of {}", fmt::join(available_targets(), ", ")),
                 .got = fmt::format("\"{}\"", name),
                 .advice = "leave it unset for the best one"});
  }
  return static_cast<size_t>(found - targets.begin());
}

size_t& chosen() {
  static size_t index = [] {
    const char* forced = std::getenv("SLIPRING_TARGET");
    const size_t first = index_of(forced == nullptr ? "" : forced, "environment variable SLIPRING_TARGET");
    choose(first);
    return first;
  }();
  return index;
}

}  // namespace

std::vector<std::string> available_targets() {
  std::vector<std::string> names;
  for (const Target& target : all_targets()) names.push_back(target.name);
  return names;
}

std::string current_target() {
  return all_targets()[chosen()].name;
}

void use_target(std::string_view name) {
  size_t& index = chosen();
  index = index_of(name, "SIMD target");
  choose(index);
}

}  // namespace slipring
