// The verifier finds what is wrong with a program: each test breaks a sound one in one way.
#include <gtest/gtest.h>

#include <slipring/error.h>

#include "fixtures.h"
#include "program/trace_ops.h"
#include "program/verify.h"

namespace slipring {
namespace {

constexpr int kWidth = 8;

/// One layer with a ring of 4 slots: the smallest model that has everything.
class Verifier : public testing::Test {
 protected:
  Verifier() {
    const Tensor table = Tensor::from(std::vector<float>(32 * kWidth, 0.5F), {32, kWidth});
    weight_.name = "weight";
    weight_.matrix = PackedMatrix::pack(table, test::pool());
  }

  TraceOps tracer(StepMode mode, int64_t capacity = 4) const {
    return TraceOps({.name = "toy",
                     .mode = mode,
                     .logits = LogitRows::all,
                     .kv_dtype = DType::F32,
                     .layers = {{.capacity = capacity, .window = capacity, .n_kv_heads = 1, .head_dim = kWidth}},
                     .taps = {},
                     .weights = nullptr});
  }
  AttentionSpec attention(int64_t window = 4) const {
    return {.n_heads = 1,
            .n_kv_heads = 1,
            .head_dim = kWidth,
            .scale = 1.0F,
            .softcap = 0.0F,
            .window = window,
            .sinks = {}};
  }
  Program sound() const {
    TraceOps ops = tracer(StepMode::prefill);
    const Value x = ops.embedding(ops.token_ids(), weight_);
    ops.output("out", attend(ops, 0, x, x, x, attention()));
    return ops.take();
  }
  static void expect_problem(const Program& program, const std::string& part) {
    const auto found = problems(program);
    for (const std::string& problem : found) {
      if (problem.find(part) != std::string::npos) return;
    }
    ADD_FAILURE() << "no problem speaks of \"" << part << "\"; found: " << testing::PrintToString(found);
  }
  static Node& node(Program& program, OpKind op) {
    for (Node& candidate : program.nodes) {
      if (candidate.op == op) return candidate;
    }
    throw std::logic_error("no such node");
  }

  Linear weight_;
};

TEST_F(Verifier, SoundProgramPasses) {
  EXPECT_EQ(problems(sound()), std::vector<std::string>{});
}

// The old bug, built on purpose: prefill that writes, then reads what it wrote.
TEST_F(Verifier, ReadAfterWriteInPrefill) {
  TraceOps ops = tracer(StepMode::prefill);
  const Value x = ops.embedding(ops.token_ids(), weight_);
  const KVHandle kv = ops.update_and_fetch(0, x, x);
  ops.output("out", ops.attention(x, kv, attention()));
  expect_problem(ops.take(), "after the step's own write");
}

TEST_F(Verifier, ReadAfterWriteInPrefillIsFineWithoutRing) {
  TraceOps ops = tracer(StepMode::prefill, 0);
  const Value x = ops.embedding(ops.token_ids(), weight_);
  const KVHandle kv = ops.update_and_fetch(0, x, x);
  ops.output("out", ops.attention(x, kv, attention(0)));
  const Program program = ops.finish();
  EXPECT_FALSE(obligations(program).single_token);
}

// A file cannot get around the guard by calling itself main: what it does to the ring decides.
TEST_F(Verifier, ObligationsAreDerived) {
  TraceOps ops = tracer(StepMode::main);
  const Value x = ops.embedding(ops.token_ids(), weight_);
  ops.output("out", attend(ops, 0, x, x, x, attention()));
  Program program = ops.finish();
  EXPECT_TRUE(obligations(program).single_token);
  program.mode = StepMode::prefill;
  EXPECT_TRUE(obligations(program).single_token);
  expect_problem(program, "after the step's own write");
  EXPECT_FALSE(obligations(sound()).single_token);
  EXPECT_EQ(obligations(sound()).text(), std::vector<std::string>{"offset % 4 + query_len <= 4"});
}

TEST_F(Verifier, StaleVersion) {
  Program program = sound();  // concat, attention, write -> concat, write, attention
  std::swap(program.nodes[program.nodes.size() - 1], program.nodes[program.nodes.size() - 2]);
  expect_problem(program, "reads ring.0 version 0 after version 1 was written");
}

TEST_F(Verifier, ConcatAfterUpdate) {
  TraceOps ops = tracer(StepMode::prefill);
  const Value x = ops.embedding(ops.token_ids(), weight_);
  ops.update(0, x, x);
  ops.output("out", ops.attention(x, ops.fetch_and_concat(0, x, x), attention()));
  expect_problem(ops.take(), "which holds them already");
}

TEST_F(Verifier, SecondAssignment) {
  Program program = sound();
  program.nodes.push_back(program.nodes[1]);
  expect_problem(program, "a second time");
}

TEST_F(Verifier, UseBeforeDefinition) {
  Program program = sound();
  std::swap(program.nodes[0], program.nodes[1]);
  expect_problem(program, "before it is defined");
}

TEST_F(Verifier, ValueOutOfRange) {
  Program program = sound();
  node(program, OpKind::attention).inputs[0] = 1000;
  expect_problem(program, "does not exist");
  node(program, OpKind::attention).inputs[0] = -1;
  expect_problem(program, "does not exist");
}

TEST_F(Verifier, WrongType) {
  Program program = sound();
  program.values[static_cast<size_t>(node(program, OpKind::attention).output)].type.dims[1] = 99;
  expect_problem(program, "declares F32 [query_len, 99], but gives F32 [query_len, 8]");
}

TEST_F(Verifier, WriteIndex) {
  Program program = sound();
  node(program, OpKind::write).attributes = WriteUse{(offset_dim() + 1) % SymInt(4)};
  expect_problem(program, "begins at (offset + 1) % 4, not at offset % 4");
  node(program, OpKind::write).attributes = WriteUse{0};
  expect_problem(program, "begins at 0, not at offset % 4");
}

TEST_F(Verifier, WindowBeyondTheRing) {
  Program program = sound();
  std::get<AttentionUse>(node(program, OpKind::attention).attributes).window = 5;
  expect_problem(program, "looks 5 keys back");
  std::get<AttentionUse>(node(program, OpKind::attention).attributes).window = 0;
  expect_problem(program, "looks 0 keys back");
}

TEST_F(Verifier, LostWrite) {
  Program program = sound();
  program.states[0].final = program.states[0].initial;
  expect_problem(program, "the last version is ring.0@1");
}

TEST_F(Verifier, ConstantOutOfRange) {
  Program program = sound();
  std::get<WeightUse>(node(program, OpKind::embedding).attributes).constant = 7;
  expect_problem(program, "a linear map as weight");
}

TEST_F(Verifier, BrokenGeometry) {
  Program program = sound();
  program.states[0].window = 9;
  expect_problem(program, "no sound geometry");
}

TEST_F(Verifier, TracingRefusesWhatDoesNotFit) {
  TraceOps ops = tracer(StepMode::prefill);
  const Value x = ops.embedding(ops.token_ids(), weight_);
  EXPECT_THROW(ops.columns(x, 4, 5), Error);
  EXPECT_THROW(ops.update(1, x, x), Error);
  EXPECT_THROW(ops.update(0, ops.columns(x, 0, 4), x), Error);
}

}  // namespace
}  // namespace slipring
