// The verifier: what must hold of every program before it runs or leaves.
#pragma once

#include <string>
#include <vector>

#include "program/program.h"

namespace slipring {

/// Everything wrong with a program, one sentence each; empty for a sound one. It checks
/// - single assignment, and that nothing is used before it is defined;
/// - that every value has the type its op gives, and every weight is there with the shape it is used with;
/// - states: each write makes the next version of the current one; nothing reads a version, or a view of it, once a
///   later one was written; and a prefill program reads a ring only as it was before the step, since after the write
///   the step's own first queries miss keys;
/// - that a ring write begins at offset % capacity, an expression over the program's dimensions;
/// - that attention on a ring looks no further back than the ring's window.
std::vector<std::string> problems(const Program& program);

/// @throws Error{bad_file} with all of them if there are any
void verify(const Program& program);

}  // namespace slipring
