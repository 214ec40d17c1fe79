// Replays a program on any Ops: on NativeOps that is the interpreter, on TraceOps a copy.
#pragma once

#include <vector>

#include "ops/ops.h"
#include "program/program.h"

namespace slipring {

/// One pass over a program's nodes, with the ops that the model itself would have called, so that the results are the
/// same bits. A value is handed on where it is used for the last time, as a model's own moves do.
/// @pre the program is verified; `ops` has the program's mode, and caches that fit its states
/// Threads: one.
class Replay {
 public:
  Replay(const Program& program, Ops& ops);

  /// Gives a value that need not be computed: an input made elsewhere.
  void set(ValueId id, Value value) { values_[static_cast<size_t>(id)] = std::move(value); }
  /// Passes over the nodes up to and including the one that makes `value`.
  void skip_past(ValueId value);
  /// Runs nodes until `value` is there. Already run ones are not run again.
  void run_to(ValueId value);
  /// Runs what is left.
  void run_all();
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }

 private:
  void run_node(size_t index);
  /// Runs the linear maps that follow each other on one input as one call; returns how many they are.
  size_t run_linears(size_t first);
  Value take(const Node& node, size_t input, size_t index);
  /// Hands the Ops those outputs that a model's own code would have tapped.
  void tap(ValueId id);

  const Program& program_;
  Ops& ops_;
  size_t next_ = 0;
  std::vector<size_t> last_use_;  // node index; outputs are never released
  std::vector<Value> values_;
  std::vector<KVHandle> kv_;  // by value
  std::vector<int> taps_;     // by value: the layer whose output it is, or -1
  std::vector<bool> read_;    // by value: a written version that the step reads again
};

}  // namespace slipring
