#include <algorithm>
#include <unordered_map>
#include <utility>

#include <slipring/error.h>
#include <slipring/stop_strings.h>
#include <slipring/tokenizer.h>

#include "text/utf8.h"

namespace slipring {
namespace {

constexpr size_t most_bytes = size_t{16} << 20;

}  // namespace

// A trie of the stop strings; each node also knows the node of its longest proper suffix.
struct StopStrings::Table {
  struct Node {
    int32_t depth = 0;
    int32_t suffix = 0;
    int32_t stop_length = 0;  // of the longest stop string that ends here; 0: none
  };
  std::vector<Node> nodes{Node{}};
  std::unordered_map<uint64_t, int32_t> children;  // node << 8 | byte

  static uint64_t key(int32_t node, char c) { return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(c); }
  int32_t child(int32_t node, char c) const {
    const auto found = children.find(key(node, c));
    return found == children.end() ? -1 : found->second;
  }
  int32_t next(int32_t node, char c) const {
    for (;;) {
      if (const int32_t to = child(node, c); to >= 0) return to;
      if (node == 0) return 0;
      node = nodes[static_cast<size_t>(node)].suffix;
    }
  }

  explicit Table(const std::vector<std::string>& strings) {
    for (const std::string& string : strings) insert(string);
    // In order of depth, so that every suffix, being shorter, is ready.
    struct Edge {
      int32_t from, to;
      char c;
    };
    std::vector<Edge> edges;
    edges.reserve(children.size());
    for (const auto& [from_and_char, to] : children) {
      edges.push_back({static_cast<int32_t>(from_and_char >> 8), to, static_cast<char>(from_and_char & 0xFF)});
    }
    const auto depth = [this](const Edge& edge) { return nodes[static_cast<size_t>(edge.to)].depth; };
    std::sort(edges.begin(), edges.end(), [&](const Edge& a, const Edge& b) { return depth(a) < depth(b); });
    for (const Edge& edge : edges) {
      Node& node = nodes[static_cast<size_t>(edge.to)];
      node.suffix = edge.from == 0 ? 0 : next(nodes[static_cast<size_t>(edge.from)].suffix, edge.c);
      if (node.stop_length == 0) node.stop_length = nodes[static_cast<size_t>(node.suffix)].stop_length;
    }
  }

 private:
  void insert(const std::string& string) {
    int32_t node = 0;
    for (const char c : string) {
      const auto [place, is_new] = children.try_emplace(key(node, c), static_cast<int32_t>(nodes.size()));
      if (is_new) nodes.push_back({nodes[static_cast<size_t>(node)].depth + 1, 0, 0});
      node = place->second;
    }
    if (node != 0) nodes[static_cast<size_t>(node)].stop_length = static_cast<int32_t>(string.size());
  }
};

StopStrings::StopStrings() : StopStrings(std::vector<std::string>()) {}

StopStrings::StopStrings(const std::vector<std::string>& strings) {
  size_t bytes = 0;
  for (const std::string& string : strings) {
    bytes += string.size();
    if (utf8::valid_prefix(string) != string.size()) {
      throw Error(ErrorCode::invalid_argument, {"stop string", "valid UTF-8", "\"" + valid_utf8(string) + "\"", ""});
    }
  }
  if (bytes > most_bytes) {
    throw Error(
        ErrorCode::invalid_argument,
        {"stop strings", "at most " + std::to_string(most_bytes) + " bytes together", std::to_string(bytes), ""});
  }
  table_ = std::make_shared<Table>(strings);
}

std::string StopStrings::add(std::string_view text) {
  if (stopped_) return {};
  for (size_t i = 0; i < text.size(); ++i) {
    state_ = table_->next(state_, text[i]);
    const int32_t stop_length = table_->nodes[static_cast<size_t>(state_)].stop_length;
    if (stop_length == 0) continue;
    stopped_ = true;
    held_.append(text.substr(0, i + 1));
    held_.resize(held_.size() - static_cast<size_t>(stop_length));
    return std::exchange(held_, {});
  }
  held_.append(text);
  const auto keep = static_cast<size_t>(table_->nodes[static_cast<size_t>(state_)].depth);
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopStrings::finish() {
  state_ = 0;
  return std::exchange(held_, {});
}

}  // namespace slipring
