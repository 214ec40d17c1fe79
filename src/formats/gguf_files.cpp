#include <fmt/format.h>

#include "formats/format_error.h"
#include "formats/gguf.h"
#include "formats/mapped_file.h"
#include "formats/model_files_impl.h"

namespace slipring {
namespace {

class GgufFiles final : public ModelFiles {
 public:
  explicit GgufFiles(const std::filesystem::path& path)
      : file_(MappedFile::open(path)), header_(GgufHeader::parse(file_->bytes(), path.string())) {
    const GgufValue* value = header_.find("general.architecture");
    if (value == nullptr) throw_bad_file(path.string(), "no key 'general.architecture'", "a model's GGUF file");
    const auto text = as_text(*value);
    if (!text) throw_wrong_type("general.architecture", *value, "a text");
    if (text->empty()) throw_bad_file(path.string(), "an empty 'general.architecture'", "the model's family");
    architecture_ = *text;
    const GgufValue* parts = header_.find("split.count");
    if (parts != nullptr && as_integer(*parts).value_or(2) > 1) {
      throw_unsupported(path.string(), "one part of a split model", "a model in one file",
                        "merge the parts, for instance with llama-gguf-split --merge");
    }
  }

  bool is_gguf() const noexcept override { return true; }
  const std::filesystem::path& path() const noexcept override { return file_->path(); }
  const std::string& architecture() const noexcept override { return architecture_; }

  std::optional<int64_t> integer(Names key) const override {
    return get(key, as_integer, "an integer of at most 63 bits");
  }
  std::optional<double> real(Names key) const override { return get(key, as_real, "a number"); }
  std::optional<bool> boolean(Names key) const override { return get(key, as_boolean, "a boolean"); }
  std::optional<std::string> text(Names key) const override {
    const auto view = get(key, as_text, "a text");
    return view ? std::optional<std::string>(*view) : std::nullopt;
  }
  std::optional<std::vector<int64_t>> integers(Names key) const override {
    return get(key, as_integers, "a list of integers of at most 63 bits");
  }
  std::optional<std::vector<double>> reals(Names key) const override { return get(key, as_reals, "a list of numbers"); }
  std::optional<std::vector<std::string>> texts(Names key) const override {
    const auto views = text_views(key);
    return views ? std::optional(std::vector<std::string>(views->begin(), views->end())) : std::nullopt;
  }
  std::optional<std::vector<std::string_view>> text_views(Names key) const override {
    return get(key, as_texts, "a list of texts");
  }

  Tensor find_tensor(Names name, int64_t layer) const override {
    if (name.gguf.empty()) return {};
    file_->check_size();  // first: the names too are views of the file
    const GgufTensor* tensor = header_.find_tensor(with_layer(name.gguf, layer));
    if (tensor == nullptr) return {};
    return Tensor::view(tensor->dtype, tensor->shape, file_->bytes().data() + tensor->begin, file_);
  }
  std::vector<std::string> tensor_names() const override {
    file_->check_size();
    std::vector<std::string> names;
    names.reserve(header_.tensors().size());
    for (const GgufTensor& tensor : header_.tensors()) names.emplace_back(tensor.name);
    return names;
  }
  void release(const Tensor& tensor) const noexcept override { file_->release(tensor.raw(), tensor.bytes()); }
  int64_t file_bytes() const noexcept override { return static_cast<int64_t>(file_->bytes().size()); }

 private:
  std::string full_key(std::string_view key) const {
    return key.front() == '/' ? std::string(key.substr(1)) : architecture_ + "." + std::string(key);
  }
  [[noreturn]] void throw_wrong_type(std::string_view key, const GgufValue& value, std::string_view expected) const {
    const std::string type = value.type == GgufType::array ? fmt::format("an array of {}", to_string(value.element))
                                                           : std::string(to_string(value.type));
    throw_bad_file(path().string(), fmt::format("key {} holds {}", in_quotes(key), type), std::string(expected));
  }
  template <class T>
  std::optional<T> get(Names key, std::optional<T> (*convert)(const GgufValue&), std::string_view expected) const {
    if (key.gguf.empty()) return std::nullopt;
    file_->check_size();
    const std::string full = full_key(key.gguf);
    const GgufValue* value = header_.find(full);
    if (value == nullptr) return std::nullopt;
    auto converted = convert(*value);
    if (!converted) throw_wrong_type(full, *value, expected);
    return converted;
  }

  std::shared_ptr<const MappedFile> file_;
  GgufHeader header_;
  std::string architecture_;
};

}  // namespace

std::shared_ptr<const ModelFiles> open_gguf(const std::filesystem::path& path) {
  return std::make_shared<GgufFiles>(path);
}

}  // namespace slipring
