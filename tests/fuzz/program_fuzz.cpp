// Any bytes as the text of a program beside a small file of weights: an Error, or a program that is sound and whose
// text, read again, is the same.
#include <cstdlib>
#include <string>
#include <string_view>

#include <slipring/error.h>

#include "formats/safetensors_writer.h"
#include "formats/temp_folder.h"
#include "program/parse.h"
#include "program/verify.h"
#include "program_weights.h"

namespace {

using namespace slipring;

// The weights that seeds name; the text can ask for any of them with any type and shape.
struct Folder : testing::TempFolder {
  Folder() { testing::write_program_weights(path() / kWeightsFile); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  static ThreadPool pool(1);
  try {
    WeightsFile weights(folder.path(), pool);
    const Program program = parse_program({reinterpret_cast<const char*>(data), size}, weights, "fuzz.program");
    if (!problems(program).empty()) std::abort();
    obligations(program).text();
    const std::string text = to_text(program);
    std::string again;
    try {
      again = to_text(parse_program(text, weights, "again.program"));
    } catch (const Error&) {
      std::abort();
    }
    if (again != text) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
