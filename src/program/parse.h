// Reads the text form of a program.
#pragma once

#include <string>
#include <string_view>

#include "program/program.h"
#include "program/weights_file.h"

namespace slipring {

/// The program that to_text() wrote, with its weights from the bundle, verified. The text is untrusted: every number is
/// range-checked, every weight must be in the file with the shape that the text says, and memory is bounded by the
/// sizes of the two files.
/// @param where  the file's name, for errors
/// @throws Error{bad_file} naming the line and what is wrong with it
Program parse_program(std::string_view text, WeightsFile& weights, const std::string& where);

}  // namespace slipring
