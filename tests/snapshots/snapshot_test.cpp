// Going on from a snapshot equals never having stopped: the same logits and the same bytes, at every length around the
// multiples of the window, into sessions of another chunk size, with a drafter, in all cache types.
#include <gtest/gtest.h>

#include <slipring/error.h>
#include <slipring/generate.h>
#include <slipring/snapshot.h>

#include "support.h"

namespace slipring::testing {
namespace {

SessionOptions options(int64_t chunk, DType kv = DType::F16, int64_t context = 0) {
  return {.kv_dtype = kv, .context = context, .chunk = chunk, .threads = 1};
}

/// The code of what `call` throws; internal if it throws nothing.
template <class Call>
ErrorCode code_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::internal;
}

TEST(Snapshots, GoingOnEqualsNeverHavingStopped) {
  const auto tokens = some_tokens(130);
  for (const DType kv : {DType::F16, DType::F32, DType::BF16}) {
    for (const int64_t length : {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 96, 100}) {
      const auto head = std::span(tokens).first(static_cast<size_t>(length));
      const auto tail = std::span(tokens).subspan(static_cast<size_t>(length));
      Session whole(small_model(), options(512, kv));
      whole.prefill(head);
      const auto snapshot = Snapshot::take(whole, {.seed = 1, .draws = 2});
      const std::string bytes = cache_bytes(whole);
      const auto expected = copy(whole.prefill(tail));
      const std::string expected_bytes = cache_bytes(whole);
      EXPECT_EQ(snapshot->length(), length);
      for (const int64_t chunk : {1, 5, 512}) {
        Session other(small_model(), options(chunk, kv));
        other.prefill(some_tokens(23, 9));  // what was there before does not matter
        snapshot->restore(other);
        EXPECT_EQ(other.length(), length);
        EXPECT_EQ(cache_bytes(other), bytes) << "length " << length;
        EXPECT_EQ(copy(other.prefill(tail)), expected) << "length " << length << " chunk " << chunk;
        EXPECT_EQ(cache_bytes(other), expected_bytes) << "length " << length << " chunk " << chunk;
        EXPECT_TRUE(std::equal(other.tokens().begin(), other.tokens().end(), tokens.begin(), tokens.end()));
      }
    }
  }
}

TEST(Snapshots, OneTokenLessGivesTheSameLogitsAgain) {
  for (const int64_t length : {1, 2, 16, 17, 32, 33, 80}) {
    const auto tokens = some_tokens(length);
    Session session(small_model(), options(512));
    const auto logits = copy(session.prefill(tokens));
    const std::string bytes = cache_bytes(session);
    const auto snapshot = Snapshot::take(session);
    ASSERT_TRUE(snapshot->can_resume_at(length - 1));
    Session other(small_model(), options(7));
    snapshot->restore(other, length - 1);
    EXPECT_EQ(copy(other.decode(tokens.back())), logits) << length;
    session.truncate(length - 1);
    EXPECT_EQ(copy(session.decode(tokens.back())), logits) << length;
    EXPECT_EQ(cache_bytes(session), bytes) << length;
  }
}

TEST(Snapshots, EveryLengthThatCanBeResumedEqualsACold) {
  const auto tokens = some_tokens(70);
  for (const int64_t taken : {9, 16, 40}) {
    Session session(small_model(), options(512));
    session.prefill(std::span(tokens).first(static_cast<size_t>(taken)));
    const auto snapshot = Snapshot::take(session);
    for (int64_t length = 1; length <= taken; ++length) {
      // Before the wrap any length; after it, one token less: the ring has the window and nothing else.
      EXPECT_EQ(snapshot->can_resume_at(length), taken <= 16 || length >= taken - 1) << taken << " " << length;
      Session warm(small_model(), options(512));
      if (!snapshot->can_resume_at(length)) {
        EXPECT_EQ(code_of([&] { snapshot->restore(warm, length); }), ErrorCode::invalid_argument);
        EXPECT_EQ(warm.length(), 0);
        EXPECT_FALSE(session.can_truncate(length));
        continue;
      }
      snapshot->restore(warm, length);
      Session cold(small_model(), options(512));
      const auto expected = copy(cold.prefill(tokens));
      EXPECT_EQ(copy(warm.prefill(std::span(tokens).subspan(static_cast<size_t>(length)))), expected) << length;
    }
    EXPECT_FALSE(snapshot->can_resume_at(taken + 1));
    EXPECT_FALSE(snapshot->can_resume_at(-1));
    EXPECT_THROW(session.truncate(taken + 1), Error);
  }
}

TEST(Snapshots, AnEmptySessionToo) {
  Session session(small_model(), options(512));
  const auto snapshot = Snapshot::take(session);
  session.prefill(some_tokens(20));
  snapshot->restore(session);
  EXPECT_EQ(session.length(), 0);
  Session fresh(small_model(), options(512));
  EXPECT_EQ(copy(session.prefill(some_tokens(20, 3))), copy(fresh.prefill(some_tokens(20, 3))));
}

TEST(Snapshots, WithADrafterTheGuessesGoOnToo) {
  const auto drafts = [](Session& session) {
    session.attach_drafts(load_dflash_drafts(data() / "muse-glimmer-assistant", small_model(), session.worker()));
  };
  GenerateOptions generation;
  generation.max_tokens = 40;
  generation.ignore_end = true;
  generation.speculation.block = 6;
  for (const double temperature : {0.0, 1.0}) {
    generation.sampling.temperature = temperature;
    generation.sampling.seed = 5;
    for (const int64_t length : {7, 33, 75}) {
      const auto prompt = some_tokens(length);
      Session whole(small_model(), options(512));
      drafts(whole);
      whole.prefill(std::span(prompt).first(static_cast<size_t>(length - 1)));
      const auto snapshot = Snapshot::take(whole);
      EXPECT_FALSE(snapshot->drafts_state().empty());
      const auto last = std::span(prompt).last(1);
      const GenerateResult expected = generate(whole, last, generation);
      Session other(small_model(), options(3));
      drafts(other);
      other.prefill(some_tokens(50, 2));
      snapshot->restore(other);
      const GenerateResult got = generate(other, last, generation);
      EXPECT_EQ(got.tokens, expected.tokens);
      // The same guesses: the drafter's own context came back as well.
      EXPECT_EQ(got.speculation.accepted_at, expected.speculation.accepted_at) << length;
      EXPECT_GT(got.speculation.proposed, 0);

      // Without the drafter's part the text is the same, without guesses.
      Session plain(small_model(), options(512));
      plain.prefill(std::span(prompt).first(static_cast<size_t>(length - 1)));
      const auto without = Snapshot::take(plain);
      Session mute(small_model(), options(512));
      drafts(mute);
      without->restore(mute);
      const GenerateResult silent = generate(mute, last, generation);
      EXPECT_EQ(silent.tokens, expected.tokens);
      EXPECT_EQ(silent.speculation.proposed, 0);
    }
  }
}

TEST(Snapshots, DrawsGoOnWhereTheyStopped) {
  GenerateOptions generation;
  generation.max_tokens = 30;
  generation.ignore_end = true;
  generation.sampling.temperature = 1.2;
  generation.sampling.top_k = 80;
  generation.sampling.repeat_penalty = 1.3;
  generation.sampling.frequency_penalty = 0.2;
  generation.sampling.seed = 99;
  Session whole(small_model(), options(512));
  const GenerateResult expected = generate(whole, some_tokens(20), generation);
  EXPECT_EQ(expected.draws, 30U);

  generation.max_tokens = 11;
  Session first(small_model(), options(512));
  GenerateResult part = generate(first, some_tokens(20), generation);
  const auto snapshot = Snapshot::take(first, {.seed = 99, .draws = part.draws});
  Session second(small_model(), options(4));
  snapshot->restore(second);
  generation.max_tokens = 19;
  generation.first_draw = snapshot->sampler().draws;
  const GenerateResult rest = generate(second, std::span(part.tokens).last(1), generation);
  part.tokens.insert(part.tokens.end(), rest.tokens.begin(), rest.tokens.end());
  EXPECT_EQ(part.tokens, expected.tokens);
}

TEST(Snapshots, LaterSnapshotsShareTheKeysOfFullLayers) {
  Session session(small_model(), options(512));
  session.prefill(some_tokens(48));
  const auto first = Snapshot::take(session);
  session.prefill(some_tokens(20, 4));
  const auto second = Snapshot::take(session, {}, first);
  const auto alone = Snapshot::take(session);
  int shared = 0;
  for (size_t i = 0; i < second->layers().size(); ++i) {
    if (second->layers()[i].kind == LayerKind::sliding) continue;
    ASSERT_EQ(second->layers()[i].parts.size(), 2U);
    EXPECT_EQ(second->layers()[i].parts[0].k().raw(), first->layers()[i].parts[0].k().raw());
    EXPECT_EQ(alone->layers()[i].parts.size(), 1U);
    ++shared;
  }
  EXPECT_EQ(shared, 2);
  EXPECT_EQ(second->bytes(), alone->bytes());
  Session a(small_model(), options(512));
  Session b(small_model(), options(512));
  second->restore(a);
  alone->restore(b);
  EXPECT_EQ(cache_bytes(a), cache_bytes(b));
  EXPECT_EQ(cache_bytes(a), cache_bytes(session));
}

TEST(Snapshots, WhatDoesNotFitIsRefusedAndLeavesTheSessionAsItWas) {
  Session session(small_model(), options(512));
  session.prefill(some_tokens(60));
  const auto snapshot = Snapshot::take(session);

  Session small(small_model(), options(512, DType::F16, 59));
  small.prefill(some_tokens(5));
  const std::string before = cache_bytes(small);
  EXPECT_EQ(code_of([&] { snapshot->restore(small); }), ErrorCode::context_full);
  EXPECT_EQ(cache_bytes(small), before);
  EXPECT_EQ(small.length(), 5);
  EXPECT_NO_THROW(snapshot->restore(small, 59));

  Session other_type(small_model(), options(512, DType::BF16));
  EXPECT_EQ(code_of([&] { snapshot->restore(other_type); }), ErrorCode::mismatch);
  Session other_weights(Model::load(data() / "gguf/muse-glimmer-q8_0.gguf"), options(512));
  EXPECT_EQ(code_of([&] { snapshot->restore(other_weights); }), ErrorCode::mismatch);
  Session other_model(Model::load(data() / "gemma3"), options(512));
  EXPECT_EQ(code_of([&] { snapshot->restore(other_model); }), ErrorCode::mismatch);
}

}  // namespace
}  // namespace slipring::testing
