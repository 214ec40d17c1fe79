// A decoder's programs: main, prefill, prefill with all logits, and the one that makes embeddings.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/decoder.h"
#include "program/program.h"

namespace slipring {

struct DecoderTraceOptions {
  StepMode mode = StepMode::prefill;
  LogitRows logits = LogitRows::all;  ///< none: the program ends with its last cache write
  DType kv_dtype = DType::F16;        ///< F32, F16 or BF16
  /// Hidden states in place of token ids, and a full cache on every layer: the window is a mask then, and no ring is
  /// in the program.
  bool embeddings = false;
  std::vector<int> taps;  ///< layers whose output is given as "hidden.N"
  /// What stands for a linear map; itself, if empty: TraceOptions::substitute.
  std::function<std::shared_ptr<const Linear>(const std::shared_ptr<const Linear>&)> substitute;
};

/// The decoder's forward pass as a program, verified. Its weights are the decoder's, which it keeps alive.
Program trace_decoder(std::string name, std::shared_ptr<const Decoder> decoder, const DecoderTraceOptions& options);
/// Token ids -> "inputs_embeds" [query_len, hidden_size], as the embeddings path takes them. No state.
Program trace_embeddings(std::string name, std::shared_ptr<const Decoder> decoder);

}  // namespace slipring
