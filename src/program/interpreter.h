// The interpreter: runs a program on real caches, with the kernels that the engine uses.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/thread_pool.h"
#include "ops/native_ops.h"
#include "program/program.h"

namespace slipring {

/// What one step is given: token ids, or hidden states for a program that takes those.
struct ProgramInput {
  std::span<const int32_t> tokens;    ///< [query_len]
  std::span<const float> embeddings;  ///< [query_len, hidden_size], row after row
};

/// By name of the output: [rows, columns], row after row.
using ProgramResults = std::map<std::string, std::vector<float>>;

/// Threads: one at a time; it uses all threads of its pool.
class Interpreter {
 public:
  /// @throws Error{bad_file} if the program is not sound
  Interpreter(std::shared_ptr<const Program> program, ThreadPool& pool);

  const Program& program() const noexcept { return *program_; }

  /// One step: checks, computes, then writes the caches. On an exception every cache is as it was.
  /// @param caches  one a state, in the order of Program::states, all at one offset
  /// @throws Error{write_first_needs_single_token} for more than one token where the program reads a ring after it was
  ///         written; Error{ring_write_wraps} with the numbers where a ring's write would wrap; Error{mismatch} for
  ///         caches that are not the program's states; Error{invalid_argument}
  ProgramResults run(std::span<const std::unique_ptr<LayerCache>> caches, const ProgramInput& input);

 private:
  int64_t query_len(const ProgramInput& input) const;
  void check_caches(std::span<const std::unique_ptr<LayerCache>> caches) const;
  void check_obligations(std::span<const std::unique_ptr<LayerCache>> caches, int64_t query_len) const;

  std::shared_ptr<const Program> program_;
  Obligations obligations_;
  LogitRows logit_rows_ = LogitRows::none;
  int64_t embedding_cols_ = 0;
  NativeOps ops_;
};

/// Empty caches for a program's states.
std::vector<std::unique_ptr<LayerCache>> make_caches(const Program& program);

}  // namespace slipring
