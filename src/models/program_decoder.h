// A decoder made of programs instead of a family's code.
#pragma once

#include <memory>
#include <optional>

#include "models/decoder.h"
#include "program/program.h"

namespace slipring {

struct DecoderPrograms {
  Program main;                  ///< mode main, with logits
  Program prefill;               ///< mode prefill, with logits of the rows asked for
  std::optional<Program> embed;  ///< token ids -> hidden states, where the others take those
};

/// Replays the programs. Their states say what the layers are: a ring of `window` slots, or a full cache.
/// @param spec  its layers are replaced
/// @throws Error{bad_file} if the programs do not belong together; Error{unsupported} for a ring larger than its window
std::shared_ptr<const Decoder> make_program_decoder(ModelSpec spec, DecoderPrograms programs);

}  // namespace slipring
