// The row "batch" of verify_model(): sequences at several places of the text, in the same steps.
#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include <slipring/step_plan.h>

#include "engine/comparison.h"
#include "engine/step.h"
#include "engine/verify_reference.h"

namespace slipring {
namespace {

constexpr const char* kName = "batch";
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

/// One sequence of the shared steps.
struct Member {
  Sequence sequence;
  int64_t block;         ///< most tokens a step
  int64_t decode_from;   ///< from this position on, one token a step
  int64_t end;           ///< it leaves when it has seen so many tokens
  bool aside = false;    ///< its tokens are guesses: kept aside, and written as far as they are those of the text
  bool compared = true;  ///< false: only there to be in the way
  std::vector<TokenId> tokens = {};  ///< of this step
  int64_t right = 0;                 ///< how many of them are the text's
};

/// What a member takes in the next step. @pre it is not at its end
void take(Member& member, const VerifyReference& reference, int64_t round) {
  const int64_t at = member.sequence.length();
  const int64_t left = member.end - at;
  int64_t count = 1;
  if (at < member.decode_from) {
    const int64_t most = std::min({member.block, left, member.decode_from - at});
    // What is kept aside may wrap.
    count = member.aside ? most : longest_step(at, most, member.sequence.ring_capacities);
  }
  const auto part = reference.part(at, at + count);
  member.tokens.assign(part.begin(), part.end());
  member.right = member.aside ? 1 + round % count : count;
  for (auto i = static_cast<size_t>(member.right); i < member.tokens.size(); ++i) {
    member.tokens[i] = static_cast<TokenId>((static_cast<size_t>(member.tokens[i]) + 1) % reference.vocab_size());
  }
}

void shared_step(const VerifyReference& reference, std::span<Member* const> members, Comparison& comparison) {
  std::vector<StepPart> parts;
  for (Member* member : members) {
    const bool wanted = member->compared && member->sequence.length() + member->right > reference.start();
    parts.push_back({.sequence = &member->sequence,
                     .tokens = member->tokens,
                     .logits = wanted             ? LogitRows::all
                               : member->compared ? LogitRows::none
                                                  : LogitRows::last});
  }
  std::vector<int64_t> offsets;
  for (const Member* member : members) offsets.push_back(member->sequence.length());
  Step step(reference.model()->decoder(), *reference.worker(), parts);
  for (size_t i = 0; i < members.size(); ++i) {
    for (int64_t row = 0; row < members[i]->right && parts[i].logits == LogitRows::all; ++row) {
      const int64_t position = offsets[i] + row;
      if (position >= reference.start()) comparison.rows(step.logits(i, row), reference.expected(position));
    }
    step.reserve(i, members[i]->right);
    step.commit(i, members[i]->right);
  }
}

}  // namespace

VerifyCheck verify_batch(const VerifyReference& reference) {
  const int64_t start = reference.start();
  const int64_t length = reference.length();
  std::vector<Member> members;
  const auto add = [&](const Sequence& from, int64_t block, int64_t decode_from, bool aside) {
    members.push_back(
        {.sequence = reference.fork(from), .block = block, .decode_from = decode_from, .end = length, .aside = aside});
  };
  add(reference.at_start(), 6, kNever, true);
  add(reference.at_early(), 33, start + kBeforeWrap, false);
  add(reference.at_start(), 1, start, false);
  add(reference.at_start(), 5, kNever, false);
  members.push_back({.sequence = reference.options().make_caches(reference.layers(), reference.options().kv_dtype),
                     .block = 7,
                     .decode_from = kNever,
                     .end = std::min(kVerifyTail, length),
                     .compared = false});

  Comparison comparison;
  int64_t steps = 0;
  for (;; ++steps) {
    std::vector<Member*> present;
    int64_t left = 0;
    for (Member& member : members) {
      left = std::max(left, member.end - member.sequence.length());
      if (member.sequence.length() == member.end) continue;
      take(member, reference, steps);
      present.push_back(&member);
    }
    if (present.empty()) break;
    reference.tell("steps that several sequences share", steps, steps + left);
    shared_step(reference, present, comparison);
  }
  for (const Member& member : members) {
    if (member.compared) comparison.caches(member.sequence, reference.end(), reference.layers());
  }
  return std::move(comparison)
      .check(kName, fmt::format("{} steps of up to {} sequences: chunks, single tokens and guesses together", steps,
                                members.size()));
}

}  // namespace slipring
