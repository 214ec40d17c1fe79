// Prompt lookup: the text's own past as a drafter.
#include <algorithm>
#include <fmt/format.h>
#include <unordered_map>

#include <slipring/drafts.h>
#include <slipring/error.h>

namespace slipring {
namespace {

class NgramDrafts final : public Drafts {
 public:
  explicit NgramDrafts(int longest) : longest_(longest), places_(static_cast<size_t>(longest)) {}

  std::string_view name() const noexcept override { return "n-gram"; }
  int64_t max_drafts() const noexcept override { return 15; }
  void observe(std::span<const TokenId>, std::span<const std::span<const float>>) override {}
  void clear() override {
    for (auto& table : places_) table.clear();
    indexed_ = 0;
  }
  bool truncate(int64_t) override { return false; }

  std::vector<TokenId> propose(std::span<const TokenId> history, int64_t count) override {
    if (indexed_ > history.size()) clear();
    index(history);
    for (size_t length = std::min(static_cast<size_t>(longest_), history.size() - 1); length >= 1; --length) {
      const size_t start = history.size() - length;
      const auto found = places_[length - 1].find(key(history, start, length));
      if (found == places_[length - 1].end()) continue;
      // The place after an earlier occurrence; a hash may collide, so look.
      const size_t after = found->second;
      if (!std::equal(history.begin() + static_cast<std::ptrdiff_t>(start), history.end(),
                      history.begin() + static_cast<std::ptrdiff_t>(after - length))) {
        continue;
      }
      std::vector<TokenId> guesses;
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        // Past the end of the text the guess itself goes on: a repetition repeats.
        const size_t at = after + i;
        guesses.push_back(at < history.size() ? history[at] : guesses[at - history.size()]);
      }
      return guesses;
    }
    return {};
  }

 private:
  static uint64_t key(std::span<const TokenId> tokens, size_t start, size_t length) {
    uint64_t hash = 0xcbf29ce484222325ULL + length;
    for (size_t i = start; i < start + length; ++i) hash = (hash ^ static_cast<uint32_t>(tokens[i])) * 0x100000001b3ULL;
    return hash;
  }

  /// Remembers where each run ended last, for all runs that have a successor in the text.
  void index(std::span<const TokenId> history) {
    for (size_t end = std::max<size_t>(indexed_, 1); end < history.size(); ++end) {
      indexed_ = end + 1;  // first: without memory for a place it is skipped, and no place lies beyond indexed_
      for (size_t length = 1; length <= std::min(static_cast<size_t>(longest_), end); ++length) {
        places_[length - 1][key(history, end - length, length)] = end;
      }
    }
    indexed_ = history.size();
  }

  int longest_;
  std::vector<std::unordered_map<uint64_t, size_t>> places_;  // by run length: hash -> index after the run
  size_t indexed_ = 0;
};

}  // namespace

std::unique_ptr<Drafts> make_ngram_drafts(int longest) {
  if (longest < 1 || longest > 16) {
    throw Error(ErrorCode::invalid_argument, {.where = "n-gram drafts",
                                              .expected = "1 to 16 tokens looked up together",
                                              .got = std::to_string(longest),
                                              .advice = {}});
  }
  return std::make_unique<NgramDrafts>(longest);
}

}  // namespace slipring
