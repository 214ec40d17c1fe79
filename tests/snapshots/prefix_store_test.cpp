// A store of prompts: what is reused and computed is counted truly, answers are those of a cold run, memory stays
// within the budget.
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <slipring/error.h>
#include <slipring/prefix_store.h>

#include "support.h"

namespace slipring::testing {
namespace {

constexpr int64_t kWindow = 16;

Session make_session(int64_t chunk = 512, const std::shared_ptr<const Model>& model = small_model()) {
  return Session(model, {.kv_dtype = DType::F16, .context = 0, .chunk = chunk, .threads = 1});
}

/// The small model with another text configuration: the same weights, other layers.
std::shared_ptr<const Model> model_with(const char* name, const std::function<void(nlohmann::json&)>& change) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("slipring-" + std::string(name) + "-" + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  std::filesystem::copy(data() / "muse-glimmer", folder);
  nlohmann::json config = nlohmann::json::parse(std::ifstream(folder / "config.json"));
  change(config["text_config"]);
  std::ofstream(folder / "config.json") << config;
  auto model = Model::load(folder);
  std::filesystem::remove_all(folder);  // what is mapped stays
  return model;
}

/// Computes a prompt with the store and checks the answer against a cold session.
ReusedPrefill expect_cold_answer(Session& session, const std::vector<TokenId>& prompt, PrefixStore& store) {
  int64_t computed = 0;
  int64_t last_done = 0;
  const ReusedPrefill result = prefill(session, prompt, store, [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, static_cast<int64_t>(prompt.size()));
    if (done > last_done && last_done > 0) computed += done - last_done;
    last_done = done;
    return true;
  });
  Session cold = make_session(512, session.shared_model());
  const auto expected = copy(cold.prefill(prompt));
  EXPECT_EQ(copy(result.logits), expected);
  EXPECT_EQ(cache_bytes(session), cache_bytes(cold));
  EXPECT_EQ(session.tokens(), prompt);
  EXPECT_EQ(result.reused + result.processed, static_cast<int64_t>(prompt.size()));
  EXPECT_LE(computed, result.processed);
  EXPECT_EQ(last_done, static_cast<int64_t>(prompt.size()));
  return result;
}

std::vector<TokenId> edited(std::vector<TokenId> tokens, int64_t from_the_end) {
  TokenId& token = tokens[tokens.size() - static_cast<size_t>(from_the_end)];
  token = token == 5 ? 6 : 5;
  return tokens;
}

TEST(PrefixStore, AnIdenticalPromptAnAppendedTurnAndEdits) {
  PrefixStore store(small_model()->spec(), {.budget_bytes = int64_t{64} << 20, .every = 0});
  EXPECT_EQ(store.every(), kWindow);
  Session session = make_session();
  const auto prompt = some_tokens(100);
  EXPECT_EQ(expect_cold_answer(session, prompt, store).processed, 100);
  EXPECT_EQ(expect_cold_answer(session, prompt, store).processed, 1);
  auto longer = prompt;
  for (const TokenId token : some_tokens(5, 7)) longer.push_back(token);
  EXPECT_EQ(expect_cold_answer(session, longer, store).processed, 5);
  EXPECT_EQ(expect_cold_answer(session, longer, store).processed, 1);
  // A token 3 from the end: position 97, and the snapshot at 96 is before it.
  EXPECT_EQ(expect_cold_answer(session, edited(prompt, 3), store).processed, 4);
  // 60 from the end: position 40, snapshot at 32.
  EXPECT_EQ(expect_cold_answer(session, edited(prompt, 60), store).processed, 68);
  // The first token: nothing is left to reuse.
  EXPECT_EQ(expect_cold_answer(session, edited(prompt, 100), store).processed, 100);
  // The last one: 99 are the same, and the ring can go back by one.
  EXPECT_EQ(expect_cold_answer(session, edited(prompt, 1), store).processed, 1);
  EXPECT_EQ(expect_cold_answer(session, {prompt.begin(), prompt.begin() + 50}, store).processed, 2);
  EXPECT_EQ(expect_cold_answer(session, {prompt.begin(), prompt.begin() + 1}, store).processed, 1);
  const PrefixStoreStats stats = store.stats();
  EXPECT_GT(stats.hits, 0);
  EXPECT_EQ(stats.evicted, 0);
}

/// The numbers of the reports: llama.cpp #14157, #21749, #13194, mlx-lm #1437.
TEST(PrefixStore, AWindowOf32AndAPromptOfAHundred) {
  const auto model = model_with("window32", [](nlohmann::json& config) { config["sliding_window"] = 32; });
  ASSERT_EQ(largest_window(model->spec()), 32);
  PrefixStore store(model->spec());
  Session session = make_session(512, model);
  const auto prompt = some_tokens(100);
  EXPECT_EQ(expect_cold_answer(session, prompt, store).processed, 100);
  EXPECT_EQ(expect_cold_answer(session, prompt, store).processed, 1);
  auto longer = prompt;
  for (const TokenId token : some_tokens(5, 7)) longer.push_back(token);
  EXPECT_EQ(expect_cold_answer(session, longer, store).processed, 5);
  // 3 from the end is position 97, 60 from the end position 40; snapshots stand at 32, 64, 96 and 100.
  EXPECT_EQ(expect_cold_answer(session, edited(prompt, 3), store).reused, 96);
  EXPECT_EQ(expect_cold_answer(session, edited(prompt, 60), store).reused, 32);
}

TEST(PrefixStore, EveryPlaceOfAnEditAndEveryLength) {
  Session session = make_session(7);
  const auto prompt = some_tokens(70);
  PrefixStore store(small_model()->spec());
  prefill(session, prompt, store);
  for (int64_t place = 1; place <= 70; place += 3) {
    const auto changed = edited(prompt, place);
    const PrefixMatch match = store.find(changed);
    EXPECT_LE(match.length, 70 - place);
    EXPECT_GE(match.length, (70 - place) / kWindow * kWindow) << place;
  }
  for (int64_t length = 1; length <= 70; length += 9) {
    const std::vector<TokenId> part(prompt.begin(), prompt.begin() + length);
    PrefixStore fresh(small_model()->spec());
    prefill(session, prompt, fresh);
    EXPECT_LT(expect_cold_answer(session, part, fresh).processed, kWindow + 1);
  }
}

TEST(PrefixStore, AReplyIsReusedByTheNextTurn) {
  PrefixStore store(small_model()->spec());
  Session session = make_session();
  auto prompt = some_tokens(40);
  prefill(session, prompt, store);
  for (const TokenId token : some_tokens(21, 3)) {
    session.decode(token);
    prompt.push_back(token);
  }
  store.put(Snapshot::take(session));
  for (const TokenId token : some_tokens(6, 4)) prompt.push_back(token);
  EXPECT_EQ(expect_cold_answer(session, prompt, store).processed, 6);
}

TEST(PrefixStore, AModelWithoutRingsBranchesAnywhere) {
  // Every layer full: any snapshot serves every branch point within it.
  const auto model = model_with("full", [](nlohmann::json& config) {
    for (nlohmann::json& type : config["layer_types"]) type = "full_attention";
  });
  ASSERT_EQ(largest_window(model->spec()), 0);
  Session session = make_session(512, model);
  PrefixStore store(model->spec());
  EXPECT_EQ(store.every(), 256);
  const auto prompt = some_tokens(100);
  prefill(session, prompt, store);
  for (const int64_t place : {1, 5, 60, 99}) {
    EXPECT_EQ(expect_cold_answer(session, edited(prompt, place), store).processed, place);
  }
  EXPECT_EQ(store.find(some_tokens(3)).length, 2);
}

TEST(PrefixStore, StaysWithinItsBudgetAndForgetsTheOldestFirst) {
  Session session = make_session();
  prefill(session, some_tokens(32), *std::make_unique<PrefixStore>(small_model()->spec()));
  const int64_t one = Snapshot::take(session)->bytes();
  PrefixStore store(small_model()->spec(), {.budget_bytes = 3 * one + one / 2, .every = 1000});
  for (int64_t salt = 0; salt < 3; ++salt) prefill(session, some_tokens(32, salt), store);
  EXPECT_EQ(store.stats().snapshots, 3);
  EXPECT_EQ(store.find(some_tokens(32, 0)).length, 31);  // used: now the youngest
  prefill(session, some_tokens(32, 3), store);
  EXPECT_EQ(store.stats().snapshots, 3);
  EXPECT_EQ(store.stats().evicted, 1);
  EXPECT_EQ(store.find(some_tokens(32, 0)).length, 31);
  EXPECT_EQ(store.find(some_tokens(32, 1)).length, 0);
  EXPECT_EQ(store.find(some_tokens(32, 2)).length, 31);
  EXPECT_LE(store.stats().bytes, 3 * one + one / 2);

  PrefixStore tiny(small_model()->spec(), {.budget_bytes = one / 2, .every = 1000});
  EXPECT_EQ(expect_cold_answer(session, some_tokens(32), tiny).processed, 32);
  EXPECT_EQ(expect_cold_answer(session, some_tokens(32), tiny).processed, 32);
  EXPECT_EQ(tiny.stats().snapshots, 0);
  EXPECT_EQ(tiny.stats().bytes, 0);
  store.clear();
  EXPECT_EQ(store.stats().bytes, 0);
  EXPECT_EQ(store.find(some_tokens(32, 0)).length, 0);
}

TEST(PrefixStore, CountsSharedKeysOnce) {
  Session session = make_session();
  PrefixStore store(small_model()->spec(), {.budget_bytes = int64_t{64} << 20, .every = kWindow});
  prefill(session, some_tokens(160), store);
  const PrefixStoreStats stats = store.stats();
  EXPECT_EQ(stats.snapshots, 10);
  int64_t rings = 0;
  int64_t full = 0;
  for (const LayerSpec& layer : small_model()->spec().layers) {
    const int64_t position = int64_t{2} * 2 * layer.n_kv_heads * layer.head_dim;
    (layer.kind == LayerKind::sliding ? rings : full) += position;
  }
  const int64_t tokens = 4 * (16 + 160) * 10 / 2;
  EXPECT_EQ(stats.bytes, 10 * rings * kWindow + full * 160 + tokens);
}

TEST(PrefixStore, OptionsAreChecked) {
  EXPECT_THROW(PrefixStore(small_model()->spec(), {.budget_bytes = -1, .every = 0}), Error);
  EXPECT_THROW(PrefixStore(small_model()->spec(), {.budget_bytes = 1, .every = -1}), Error);
  PrefixStore store(small_model()->spec(), {.budget_bytes = 1, .every = 10});
  EXPECT_EQ(store.next_point(0, 100), 10);
  EXPECT_EQ(store.next_point(10, 100), 20);
  EXPECT_EQ(store.next_point(95, 97), 97);
  EXPECT_EQ(store.next_point(90, 100), 100);
  EXPECT_THROW(
      {
        Session session = make_session();
        prefill(session, {}, store);
      },
      Error);
}

}  // namespace
}  // namespace slipring::testing
