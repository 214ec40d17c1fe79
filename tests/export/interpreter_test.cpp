// A traced program gives the bits of the eager engine: logits, and every byte of the keys and values.
#include "program/interpreter.h"

#include <gtest/gtest.h>
#include <map>
#include <set>

#include <slipring/error.h>
#include <slipring/ring_kv_cache.h>
#include <slipring/step_plan.h>

#include "fixtures.h"

namespace slipring {
namespace {

using test::cache_bytes;

/// The eager engine, one step at a time.
struct Eager {
  Eager(const Decoder& model, DType kv) : decoder(model), ops(test::pool()) {
    sequence = make_sequence(model.spec().layers, kv);
  }

  std::vector<float> step(StepMode mode, std::span<const int32_t> ids, LogitRows logits) {
    const StepSequence part{.caches = sequence.caches,
                            .offset = sequence.caches[0]->offset(),
                            .query_len = static_cast<int64_t>(ids.size()),
                            .logits = logits};
    ops.begin({.mode = mode, .sequences = {&part, 1}, .tokens = ids, .taps = {}});
    const Value hidden = decoder.forward(ops);
    std::vector<float> result;
    if (logits != LogitRows::none) {
      const Value rows = decoder.logits(ops, hidden);
      result.assign(ops.data(rows).begin(), ops.data(rows).end());
    }
    ops.commit(0, part.query_len);
    ops.end();
    return result;
  }

  const Decoder& decoder;
  NativeOps ops;
  Sequence sequence;
};

struct Case {
  const char* model;
  DType kv;
};

class InterpreterEqualsEager : public testing::TestWithParam<Case> {};

TEST_P(InterpreterEqualsEager, PastThreeWraps) {
  const auto decoder = test::decoder(GetParam().model);
  const DType kv = GetParam().kv;
  const auto program = [&](const char* name, StepMode mode, LogitRows logits) {
    return std::make_shared<const Program>(
        trace_decoder(name, decoder, {.mode = mode, .logits = logits, .kv_dtype = kv, .taps = {}}));
  };
  Interpreter main(program("main", StepMode::main, LogitRows::all), test::pool());
  Interpreter score(program("score", StepMode::prefill, LogitRows::all), test::pool());
  Interpreter last(program("last", StepMode::prefill, LogitRows::last), test::pool());
  Interpreter silent(program("prefill", StepMode::prefill, LogitRows::none), test::pool());

  Eager eager(*decoder, kv);
  const auto caches = make_caches(main.program());
  const auto ids = test::tokens(80, decoder->spec().vocab_size);
  // Chunks of every kind: single tokens, parts of a ring, whole rings; after each plan, some decode steps.
  const std::vector<int64_t> chunks{7, 1, 16, 1, 2, 1, 5, 3, 64, 1, 11};
  size_t done = 0;
  for (size_t turn = 0; done < ids.size(); ++turn) {
    const int64_t wanted = std::min<int64_t>(chunks[turn % chunks.size()], static_cast<int64_t>(ids.size() - done));
    for (const PlannedStep& step : plan_steps(static_cast<int64_t>(done), wanted, 64, eager.sequence.ring_capacities)) {
      const std::span part(ids.data() + step.offset, static_cast<size_t>(step.count));
      const bool decode = step.count == 1;
      const LogitRows rows = decode || turn % 3 == 0 ? LogitRows::all
                             : turn % 3 == 1         ? LogitRows::last
                                                     : LogitRows::none;
      Interpreter& interpreter = decode ? main : turn % 3 == 0 ? score : turn % 3 == 1 ? last : silent;
      const auto expected = eager.step(decode ? StepMode::main : StepMode::prefill, part, rows);
      const auto got = interpreter.run(caches, {.tokens = part, .embeddings = {}});
      if (rows == LogitRows::none) {
        EXPECT_TRUE(got.empty());
      } else {
        ASSERT_EQ(got.at("logits"), expected) << "offset " << step.offset << ", query_len " << step.count;
      }
      ASSERT_EQ(cache_bytes(caches), cache_bytes(eager.sequence.caches)) << "offset " << step.offset;
      done += part.size();
    }
  }
  ASSERT_GT(static_cast<int64_t>(done), 3 * eager.sequence.ring_capacities.front());
}

INSTANTIATE_TEST_SUITE_P(
    Models, InterpreterEqualsEager,
    testing::Values(Case{"muse-glimmer", DType::F32}, Case{"muse-glimmer", DType::F16},
                    Case{"gguf/muse-glimmer-q8_0.gguf", DType::F16}, Case{"gguf/muse-glimmer-f16.gguf", DType::BF16},
                    Case{"gemma3", DType::F32}, Case{"gemma3", DType::F16}, Case{"gemma2", DType::F16},
                    // Every layer of this one slides: no full cache tells the offset.
                    Case{"mistral", DType::F32}, Case{"mistral", DType::F16}, Case{"phi3", DType::F16},
                    Case{"olmo3", DType::F16}, Case{"cohere2", DType::F16}, Case{"gpt-oss", DType::F32},
                    Case{"gpt-oss", DType::F16}, Case{"gguf/gpt-oss-f16.gguf", DType::F16}),
    [](const auto& instance) {
      std::string name = std::string(instance.param.model) + "_" + std::string(to_string(instance.param.kv));
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      return name;
    });

/// Every query length that a ring takes, at offsets past three wraps.
TEST(InterpreterAndEager, EveryQueryLength) {
  for (const char* model : {"muse-glimmer", "gemma3"}) {
    const auto decoder = test::decoder(model);
    Interpreter score(std::make_shared<const Program>(trace_decoder(
                          "score", decoder,
                          {.mode = StepMode::prefill, .logits = LogitRows::all, .kv_dtype = DType::F16, .taps = {}})),
                      test::pool());
    const int64_t capacity = score.program().states[0].capacity;
    const auto ids = test::tokens(3 * capacity + 2, decoder->spec().vocab_size, 3);
    std::set<int64_t> lengths;
    for (int64_t wanted = 1; wanted <= capacity; ++wanted) {
      Eager eager(*decoder, DType::F16);
      const auto caches = make_caches(score.program());
      const auto total = static_cast<int64_t>(ids.size());
      for (const PlannedStep& step : plan_steps(0, total, wanted, eager.sequence.ring_capacities)) {
        const auto part = std::span(ids).subspan(static_cast<size_t>(step.offset), static_cast<size_t>(step.count));
        const auto expected = eager.step(StepMode::prefill, part, LogitRows::all);
        ASSERT_EQ(score.run(caches, {.tokens = part, .embeddings = {}}).at("logits"), expected)
            << model << ", offset " << step.offset << ", query_len " << step.count;
        ASSERT_EQ(cache_bytes(caches), cache_bytes(eager.sequence.caches));
        lengths.insert(step.count);
      }
    }
    EXPECT_EQ(static_cast<int64_t>(lengths.size()), capacity);
  }
}

/// The embeddings path: hidden states in, full caches on every layer, the window as a mask; past several windows.
TEST(EmbeddingsProgram, EqualsTheTokenPath) {
  const auto decoder = test::decoder("muse-glimmer");
  const auto traced = [&](StepMode mode) {
    return std::make_shared<const Program>(trace_decoder(
        "embeddings", decoder,
        {.mode = mode, .logits = LogitRows::all, .kv_dtype = DType::F32, .embeddings = true, .taps = {}}));
  };
  Interpreter embed(std::make_shared<const Program>(trace_embeddings("embed", decoder)), test::pool());
  const auto ids = test::tokens(70, decoder->spec().vocab_size);
  Eager eager(*decoder, DType::F32);
  std::vector<float> expected;
  for (const PlannedStep& step : plan_steps(0, 70, 64, eager.sequence.ring_capacities)) {
    const auto rows = eager.step(
        StepMode::prefill, std::span(ids).subspan(static_cast<size_t>(step.offset), static_cast<size_t>(step.count)),
        LogitRows::all);
    expected.insert(expected.end(), rows.begin(), rows.end());
  }
  // Write-first with any query_len is right here: nothing is evicted, and the guard holds nobody back.
  for (const StepMode mode : {StepMode::prefill, StepMode::main}) {
    Interpreter interpreter(traced(mode), test::pool());
    EXPECT_FALSE(interpreter.program().has_ring());
    const auto caches = make_caches(interpreter.program());
    std::vector<float> got;
    for (const auto& [first, count] : std::vector<std::pair<size_t, size_t>>{{0, 33}, {33, 1}, {34, 36}}) {
      const auto part = std::span(ids).subspan(first, count);
      const auto states = embed.run({}, {.tokens = part, .embeddings = {}}).at("inputs_embeds");
      const auto rows = interpreter.run(caches, {.tokens = {}, .embeddings = states}).at("logits");
      got.insert(got.end(), rows.begin(), rows.end());
    }
    EXPECT_EQ(got, expected);
  }
}

class Guard : public testing::Test {
 protected:
  std::shared_ptr<const Decoder> decoder_ = test::decoder("muse-glimmer");
  std::shared_ptr<const Program> traced(StepMode mode) {
    return std::make_shared<const Program>(trace_decoder(
        "guarded", decoder_, {.mode = mode, .logits = LogitRows::all, .kv_dtype = DType::F16, .taps = {}}));
  }
  /// Runs, expects this error, and that no byte of any cache changed.
  static void expect_refused(Interpreter& interpreter, std::span<const std::unique_ptr<LayerCache>> caches,
                             std::span<const int32_t> ids, ErrorCode code) {
    const auto before = cache_bytes(caches);
    try {
      interpreter.run(caches, {.tokens = ids, .embeddings = {}});
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
    }
    EXPECT_EQ(cache_bytes(caches), before);
  }
};

TEST_F(Guard, WriteFirstTakesOneToken) {
  Interpreter main(traced(StepMode::main), test::pool());
  const auto caches = make_caches(main.program());
  const auto ids = test::tokens(2, 320);
  main.run(caches, {.tokens = std::span(ids).first(1), .embeddings = {}});
  expect_refused(main, caches, ids, ErrorCode::write_first_needs_single_token);
}

TEST_F(Guard, RingWriteMayNotWrap) {
  Interpreter prefill(traced(StepMode::prefill), test::pool());
  const auto caches = make_caches(prefill.program());
  const auto ids = test::tokens(17, 320);
  expect_refused(prefill, caches, ids, ErrorCode::ring_write_wraps);
  prefill.run(caches, {.tokens = std::span(ids).first(9), .embeddings = {}});
  expect_refused(prefill, caches, std::span(ids).first(8), ErrorCode::ring_write_wraps);
  prefill.run(caches, {.tokens = std::span(ids).first(7), .embeddings = {}});
}

TEST_F(Guard, OtherCachesAreRefused) {
  Interpreter prefill(traced(StepMode::prefill), test::pool());
  const auto ids = test::tokens(3, 320);
  Sequence other = make_sequence(decoder_->spec().layers, DType::F32);
  expect_refused(prefill, other.caches, ids, ErrorCode::mismatch);
  expect_refused(prefill, std::span(other.caches).first(2), ids, ErrorCode::mismatch);
}

TEST_F(Guard, BadInputIsRefused) {
  Interpreter prefill(traced(StepMode::prefill), test::pool());
  const auto caches = make_caches(prefill.program());
  expect_refused(prefill, caches, {}, ErrorCode::invalid_argument);
  const std::vector<int32_t> outside{1, 320};
  expect_refused(prefill, caches, outside, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace slipring
