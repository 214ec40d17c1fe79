// The row "programs" of verify_model(): the model traced to main and prefill, as an export holds them, and replayed.
#include <fmt/format.h>

#include <slipring/step_plan.h>

#include "engine/comparison.h"
#include "engine/step.h"
#include "engine/verify_reference.h"
#include "models/program_decoder.h"
#include "models/trace_decoder.h"

namespace slipring {
namespace {

constexpr const char* kName = "programs";

/// Replays the text from where `sequence` stands to its end.
void replay_to_end(const VerifyReference& reference, const Decoder& programs, Sequence sequence, int64_t chunk,
                   Comparison& comparison) {
  const int64_t from = sequence.length();
  const int64_t total = reference.length() - from;
  for (const PlannedStep& planned : plan_steps(from, total, chunk, sequence.ring_capacities)) {
    reference.tell("traced programs", planned.offset - from, total);
    const StepPart part{.sequence = &sequence,
                        .tokens = reference.part(planned.offset, planned.offset + planned.count),
                        .logits = LogitRows::all};
    Step step(programs, *reference.worker(), {&part, 1});
    for (int64_t row = 0; row < planned.count; ++row) {
      const int64_t position = planned.offset + row;
      if (position >= reference.start()) comparison.rows(step.logits(0, row), reference.expected(position));
    }
    step.reserve(0, planned.count);
    step.commit(0, planned.count);
  }
  comparison.caches(sequence, reference.end(), reference.layers());
}

}  // namespace

VerifyCheck verify_programs(const VerifyReference& reference) {
  const Model& model = *reference.model();
  if (model.decoder().is_program()) return nothing_to_compare(kName, "a bundle: everything here ran from its programs");
  const VerifyOptions& options = reference.options();
  const auto traced = [&](const char* name, StepMode mode) {
    Program program = trace_decoder(name, model.shared_decoder(),
                                    {.mode = mode, .logits = LogitRows::all, .kv_dtype = options.kv_dtype});
    if (options.change_program) options.change_program(program);
    return program;
  };
  const auto programs = make_program_decoder(
      model.spec(),
      {.main = traced("main", StepMode::main), .prefill = traced("score", StepMode::prefill), .embed = std::nullopt});
  Comparison comparison;
  const bool whole = reference.window() <= kSmallWindow;
  const Sequence& from = reference.at_early();
  replay_to_end(reference, *programs,
                whole ? options.make_caches(reference.layers(), options.kv_dtype) : reference.fork(from), kVerifyChunk,
                comparison);
  replay_to_end(reference, *programs, reference.fork(reference.at_start()), 1, comparison);
  return std::move(comparison)
      .check(kName, fmt::format("traced: prefill from position {}, main from {}", whole ? 0 : from.length(),
                                reference.start()));
}

}  // namespace slipring
