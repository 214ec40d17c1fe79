// The promises of docs/design.md, checked on a user's own model at its real geometry.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <slipring/model.h>

#include "engine/sequence.h"

namespace slipring {

struct Program;

/// One line of the table: two ways to the same numbers.
struct VerifyCheck {
  std::string name;
  int64_t cases = 0;     ///< rows of logits compared, each over the whole vocabulary; 0: nothing to compare
  double largest = 0.0;  ///< greatest |difference| of a logit, key or value; infinity if the caches' positions differ
  bool same = true;      ///< bit for bit, tokens included
  std::string remark;    ///< what was compared, or why nothing was
};

struct VerifyOptions {
  std::filesystem::path drafter;  ///< a DFlash drafter of the model; empty: only guesses without a second model
  std::vector<TokenId> text;      ///< what is computed; too short or empty: ids without meaning are appended
  DType kv_dtype = DType::F16;
  int threads = 0;
  /// The caches under test. A test puts broken ones here.
  std::function<Sequence(const std::vector<LayerSpec>&, DType)> make_caches = make_sequence;
  /// Told each program that was traced, before it runs. A test breaks them here.
  std::function<void(Program&)> change_program;
  /// Told what is being done; false stops (Error{cancelled}).
  std::function<bool(std::string_view what, int64_t done, int64_t total)> progress;
};

/// How long a text verify() computes: past a multiple of the largest window, so that every ring wraps.
int64_t verify_length(const ModelSpec& spec) noexcept;

/// Runs all checks. Takes a handful of prompts of verify_length() tokens.
/// @throws Error as Model and Session do, Error{cancelled}
std::vector<VerifyCheck> verify_model(const std::shared_ptr<const Model>& model, const VerifyOptions& options);

}  // namespace slipring
