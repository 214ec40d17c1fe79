// Property: a sequence does not notice what else is in the batch. Random small models; steps that mix prompts, single
// tokens and guesses of several sequences, whose rings stand at different offsets; each sequence's logits and the bytes
// of its caches are those of a run alone.
//
// A random model is a family's fixture weights, which are random, under a random window and random kinds of layers.
#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck.h>

#include <slipring/session.h>
#include <slipring/step_plan.h>

#include "engine/comparison.h"
#include "engine/step.h"
#include "formats/temp_folder.h"

namespace slipring::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// low ... high - 1, small values no likelier than large ones.
int64_t between(int64_t low, int64_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<int64_t>(low, high));
}

std::shared_ptr<const Model> random_model() {
  const auto family = *rc::gen::element<std::string>("muse-glimmer", "gemma2", "gemma3", "mistral", "phi3", "olmo3",
                                                     "cohere2", "gpt-oss");
  const fs::path source = fs::path(SLIPRING_SOURCE_DIR) / "tests/data" / family;
  json config;
  std::ifstream(source / "config.json") >> config;
  json& text = config.contains("text_config") ? config["text_config"] : config;
  text["sliding_window"] = between(2, 24);
  if (text.contains("layer_types")) {
    for (json& kind : text["layer_types"]) kind = between(0, 3) == 0 ? "full_attention" : "sliding_attention";
    text["layer_types"][0] = "sliding_attention";  // at least one ring
  }
  const TempFolder folder;
  folder.write("config.json", config.dump());
  fs::create_symlink(source / "model.safetensors", folder.path() / "model.safetensors");
  return Model::load(folder.path(), {.threads = 1});
}

using Row = std::vector<float>;

/// One sequence of the batch, and the same sequence alone.
struct Member {
  enum class Way : uint8_t { absent, prompt, one, guesses };

  std::unique_ptr<Session> shared;  // only holds the caches: the batch's worker computes
  std::unique_ptr<Session> alone;
  Way way = Way::absent;
  std::vector<TokenId> tokens = {};  // of this step
  int64_t kept = 0;                  // so many of them are written
};

std::vector<TokenId> random_tokens(const Model& model, int64_t count) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(between(0, model.spec().vocab_size)));
  return tokens;
}

Member random_member(const std::shared_ptr<const Model>& model, DType kv) {
  const auto session = [&](int64_t chunk) {
    return std::make_unique<Session>(model, SessionOptions{.kv_dtype = kv, .context = 0, .chunk = chunk, .threads = 1});
  };
  Member member{.shared = session(between(1, 40)), .alone = session(between(1, 40))};
  const auto prompt = random_tokens(*model, between(0, 3 * largest_window(model->spec())));
  if (prompt.empty()) return member;
  member.shared->prefill(prompt);
  member.alone->prefill(prompt);
  return member;
}

void choose(Member& member, const Model& model) {
  member.way = *rc::gen::element(Member::Way::absent, Member::Way::prompt, Member::Way::prompt, Member::Way::one,
                                 Member::Way::one, Member::Way::guesses, Member::Way::guesses);
  int64_t count = member.way == Member::Way::absent ? 0 : 1;
  if (member.way == Member::Way::prompt) {
    const Sequence& sequence = member.shared->sequence();
    count = longest_step(sequence.length(), between(1, 40), sequence.ring_capacities);
  }
  if (member.way == Member::Way::guesses) count = between(1, 12);  // longer than some rings
  member.tokens = random_tokens(model, count);
  member.kept = member.way == Member::Way::guesses ? between(0, count + 1) : count;
}

/// The step's logits as the sequence alone gives them, after every token; then it stands where the batch's does.
std::vector<Row> rows_alone(Member& member) {
  std::vector<Row> rows;
  const auto add = [&](std::span<const float> row) { rows.emplace_back(row.begin(), row.end()); };
  if (member.way == Member::Way::prompt) {
    member.alone->score(member.tokens, [&](int64_t, std::span<const float> row) { add(row); });
    return rows;
  }
  // Token by token as far as they stay; the rejected ones by a step of their own.
  const auto kept = static_cast<size_t>(member.kept);
  for (size_t i = 0; i < kept; ++i) add(member.alone->decode(member.tokens[i]));
  if (kept == member.tokens.size()) return rows;
  member.alone->verify(std::span(member.tokens).subspan(kept), [&](const Step& step) {
    for (size_t i = kept; i < member.tokens.size(); ++i) add(step.logits(0, static_cast<int64_t>(i - kept)));
    return 0;
  });
  return rows;
}

/// What the generator must have met at least once.
struct Seen {
  int mixed = 0;          // steps with a prompt, a single token and guesses
  int single_tokens = 0;  // steps of several sequences on the write-first path
  int wrapped = 0;        // guesses that were written across a ring's end
};

void check_step(const Model& model, Worker& worker, std::vector<Member>& members, Seen& seen) {
  std::vector<Member*> present;
  for (Member& member : members) {
    choose(member, model);
    if (member.way != Member::Way::absent) present.push_back(&member);
  }
  if (present.empty()) return;
  const auto count = [&](Member::Way way) {
    return std::count_if(present.begin(), present.end(), [way](const Member* member) { return member->way == way; });
  };
  const auto ones = count(Member::Way::one);
  if (ones > 0 && count(Member::Way::prompt) > 0 && count(Member::Way::guesses) > 0) ++seen.mixed;
  if (ones > 1 && ones == static_cast<int64_t>(present.size())) ++seen.single_tokens;
  const int64_t window = largest_window(model.spec());

  std::vector<StepPart> parts;
  for (Member* member : present) {
    const bool guesses = member->way == Member::Way::guesses;
    const int64_t at = member->shared->length() % window;
    if (guesses && at + member->kept > window) ++seen.wrapped;
    parts.push_back({.sequence = &member->shared->sequence(),
                     .tokens = member->tokens,
                     .logits = guesses ? LogitRows::all : *rc::gen::element(LogitRows::all, LogitRows::last)});
  }
  std::vector<std::vector<Row>> rows(present.size());
  {
    Step step(model.decoder(), worker, parts);
    for (size_t i = 0; i < present.size(); ++i) {
      const size_t wanted = parts[i].logits == LogitRows::all ? present[i]->tokens.size() : 1;
      for (size_t row = 0; row < wanted; ++row) {
        const auto logits = step.logits(i, static_cast<int64_t>(row));
        rows[i].emplace_back(logits.begin(), logits.end());
      }
      step.reserve(i, present[i]->kept);
      step.commit(i, present[i]->kept);
    }
  }
  for (size_t i = 0; i < present.size(); ++i) {
    auto expected = rows_alone(*present[i]);
    if (parts[i].logits == LogitRows::last) expected.erase(expected.begin(), expected.end() - 1);
    RC_ASSERT(rows[i].size() == expected.size());
    Comparison comparison;
    for (size_t row = 0; row < expected.size(); ++row) comparison.rows(rows[i][row], expected[row]);
    RC_ASSERT(present[i]->shared->tokens() == present[i]->alone->tokens());
    comparison.caches(present[i]->shared->sequence(), present[i]->alone->sequence(), model.spec().layers);
    const VerifyCheck check = std::move(comparison).check("", "");
    RC_ASSERT(check.same);
  }
}

TEST(BatchProperty, EachSequenceOfAMixedStepIsAsAlone) {
  Seen seen;
  EXPECT_TRUE(rc::check("logits and cache bytes do not depend on the rest of the batch", [&] {
    const auto model = random_model();
    const DType kv = *rc::gen::element(DType::F32, DType::F16, DType::BF16);
    Worker worker(static_cast<int>(between(1, 4)));
    std::vector<Member> members;
    const int64_t sequences = between(2, 6);
    for (int64_t i = 0; i < sequences; ++i) members.push_back(random_member(model, kv));
    const int64_t steps = between(1, 6);
    for (int64_t i = 0; i < steps; ++i) check_step(*model, worker, members, seen);
  }));
  EXPECT_GT(seen.mixed, 10);
  EXPECT_GT(seen.single_tokens, 0);
  EXPECT_GT(seen.wrapped, 10);
}

}  // namespace
}  // namespace slipring::testing
