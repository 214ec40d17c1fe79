#include "formats/safetensors_writer.h"

#include <nlohmann/json.hpp>

#include "formats/format_error.h"

namespace slipring {

void SafetensorsWriter::write_header() {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata_.empty()) header["__metadata__"] = metadata_;
  uint64_t offset = 0;
  for (const Declared& tensor : declared()) {
    if (tensor.name == "__metadata__") {
      throw Error(
          ErrorCode::invalid_argument,
          {.where = where(), .expected = "another name", .got = "a tensor called '__metadata__'", .advice = {}});
    }
    auto& entry = header[tensor.name];
    entry["dtype"] = std::string(to_string(tensor.dtype));
    entry["shape"] = nlohmann::json::array();
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) entry["shape"].push_back(tensor.shape[axis]);
    entry["data_offsets"] = {offset, offset + tensor.bytes};
    offset += tensor.bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(
        ErrorCode::invalid_argument,
        {.where = where(), .expected = "UTF-8", .got = "tensor names or metadata with other bytes", .advice = {}});
  }
  // Spaces, so that the data starts aligned: the format allows them.
  while (text.size() % 8 != 0) text += ' ';
  const uint64_t length = text.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(text);
}

void write_safetensors(const std::filesystem::path& target,
                       const std::vector<std::pair<std::string, Tensor>>& tensors) {
  SafetensorsWriter writer(target);
  for (const auto& [name, tensor] : tensors) writer.declare(name, tensor.dtype(), tensor.shape());
  for (const auto& [name, tensor] : tensors) writer.append(name, tensor);
  writer.finish();
}

}  // namespace slipring
