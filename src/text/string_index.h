// From a vocabulary's strings to their ids, without a second copy of the strings.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slipring {

/// Open addressing over a list of strings that somebody else owns: 8 to 16 bytes an entry.
/// Where a string occurs more than once, the first of its ids is the one that is found.
class StringIndex {
 public:
  /// @param strings outlives this index and does not change
  explicit StringIndex(const std::vector<std::string>& strings) : strings_(&strings) {
    size_t slots = 16;
    while (slots < strings.size() * 2) slots *= 2;
    slots_.assign(slots, -1);
  }

  /// Makes strings[id] findable, unless an equal one is already.
  void insert(int32_t id) {
    int32_t& slot = slots_[slot_of((*strings_)[static_cast<size_t>(id)])];
    if (slot < 0) slot = id;
  }

  std::optional<int32_t> find(std::string_view text) const {
    const int32_t id = slots_[slot_of(text)];
    if (id < 0) return std::nullopt;
    return id;
  }

 private:
  size_t slot_of(std::string_view text) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = std::hash<std::string_view>{}(text)&mask;
    while (slots_[slot] >= 0 && (*strings_)[static_cast<size_t>(slots_[slot])] != text) slot = (slot + 1) & mask;
    return slot;
  }

  const std::vector<std::string>* strings_;
  std::vector<int32_t> slots_;
};

}  // namespace slipring
