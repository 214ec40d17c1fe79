// A decoder's programs: main, prefill, prefill with all logits, and the one that makes embeddings.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/decoder.h"
#include "models/drafter.h"
#include "program/program.h"

namespace slipring {

/// What stands for a linear map in a program: TraceOptions::substitute.
using LinearSubstitute = std::function<std::shared_ptr<const Linear>(const std::shared_ptr<const Linear>&)>;

struct DecoderTraceOptions {
  StepMode mode = StepMode::prefill;
  LogitRows logits = LogitRows::all;  ///< none: the program ends with its last cache write
  DType kv_dtype = DType::F16;        ///< F32, F16 or BF16
  /// Hidden states in place of token ids, and a full cache on every layer: the window is a mask then, and no ring is
  /// in the program.
  bool embeddings = false;
  std::vector<int> taps = {};        ///< layers whose output is given as "hidden.N"
  LinearSubstitute substitute = {};  ///< empty: each map stands for itself
};

/// The decoder's forward pass as a program, verified. Its weights are the decoder's, which it keeps alive.
Program trace_decoder(std::string name, std::shared_ptr<const Decoder> decoder, const DecoderTraceOptions& options);
/// Token ids -> "inputs_embeds" [query_len, hidden_size], as the embeddings path takes them. No state.
Program trace_embeddings(std::string name, std::shared_ptr<const Decoder> decoder);

/// A drafter's two programs. Their states are one set of rings, the same in both: what inject wrote, draft reads.
/// inject: inputs_embeds [query_len, taps * hidden_size] are the target's tapped hidden states; writes the rings.
Program trace_inject(std::string name, std::shared_ptr<const Drafter> drafter, DType kv_dtype,
                     const LinearSubstitute& substitute = {});
/// draft: token_ids [query_len] are the block, the anchor and then the mask token; gives "hidden" [query_len,
/// hidden_size] and, through the target's head, "logits" [query_len, vocab_size]; writes nothing.
Program trace_draft(std::string name, std::shared_ptr<const Drafter> drafter, std::shared_ptr<const Decoder> target,
                    DType kv_dtype, const LinearSubstitute& substitute = {});

}  // namespace slipring
