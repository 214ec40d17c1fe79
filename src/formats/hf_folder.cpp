#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <unordered_map>

#include "formats/format_error.h"
#include "formats/json_file.h"
#include "formats/model_files_impl.h"
#include "formats/safetensors.h"

namespace slipring {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";

// True for names that stay inside the folder.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of("/\\:") == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

// The weight files of a folder; where a shard list exists, list and shards have been checked to agree both ways.
class Shards {
 public:
  explicit Shards(const fs::path& folder) {
    const bool sharded = fs::exists(folder / kIndexName);
    const bool single = fs::exists(folder / kSingleName);
    if (sharded && single) {
      throw Error(ErrorCode::mismatch, {.where = folder.string(),
                                        .expected = "one of them",
                                        .got = fmt::format("both {} and {}", kSingleName, kIndexName),
                                        .advice = "remove the one that is stale"});
    }
    if (!sharded && !single) {
      throw Error(ErrorCode::not_found, {.where = folder.string(),
                                         .expected = fmt::format("{} or {}", kSingleName, kIndexName),
                                         .got = "neither",
                                         .advice = "give a folder with safetensors weights, or a GGUF file"});
    }
    if (single) {
      add(folder / kSingleName, {});
    } else {
      open_index(folder);
    }
  }

  const std::vector<std::shared_ptr<const SafetensorsFile>>& files() const noexcept { return files_; }
  const SafetensorsFile* find(std::string_view name) const {
    const auto found = owner_.find(name);
    return found == owner_.end() ? nullptr : files_[found->second].get();
  }

 private:
  // Opens one weight file and enters its tensors. `listed`: the shard that the index names for each; empty: no index.
  void add(const fs::path& path, const std::unordered_map<std::string, std::string>& listed) {
    files_.push_back(SafetensorsFile::open(path));
    for (const SafetensorsEntry& entry : files_.back()->entries()) {
      if (!listed.empty()) {
        const auto found = listed.find(entry.name);
        if (found == listed.end() || found->second != path.filename()) {
          throw Error(ErrorCode::mismatch, {.where = path.string(),
                                            .expected = "the tensors that the shard list names for this file",
                                            .got = "tensor " + in_quotes(entry.name) + ", which it does not",
                                            .advice = "fetch the shards and their list again"});
        }
      }
      owner_.emplace(entry.name, files_.size() - 1);
    }
  }

  void open_index(const fs::path& folder) {
    const fs::path index = folder / kIndexName;
    const json list = read_json_file(index);
    if (!list.is_object() || !list.contains("weight_map") || !list["weight_map"].is_object()) {
      throw_bad_file(index.string(), "no object 'weight_map'", "file names by tensor name");
    }
    std::unordered_map<std::string, std::string> listed;
    std::set<std::string> names;
    for (const auto& [tensor, shard] : list["weight_map"].items()) {
      if (!shard.is_string() || !is_plain_file_name(shard.get_ref<const std::string&>())) {
        throw_bad_file(
            index.string(),
            "shard " + (shard.is_string() ? in_quotes(shard.get<std::string>()) : "of tensor " + in_quotes(tensor)),
            "a plain file name");
      }
      listed.emplace(tensor, shard.get<std::string>());
      names.insert(shard.get<std::string>());
    }
    if (names.empty()) throw_bad_file(index.string(), "an empty 'weight_map'", "file names by tensor name");
    check_no_extra_shard(folder, names);
    for (const std::string& name : names) {
      if (!fs::exists(folder / name)) {
        throw Error(ErrorCode::not_found, {.where = index.string(),
                                           .expected = "shard " + in_quotes(name) + " beside it",
                                           .got = "no such file",
                                           .advice = "fetch the missing shard"});
      }
      add(folder / name, listed);
    }
    for (const auto& [tensor, shard] : listed) {
      if (owner_.find(tensor) == owner_.end()) {
        throw Error(ErrorCode::mismatch, {.where = (folder / shard).string(),
                                          .expected = "tensor " + in_quotes(tensor) + ", as the shard list says",
                                          .got = "no such tensor",
                                          .advice = "fetch the shards and their list again"});
      }
    }
  }

  // A shard of another download beside the listed ones means that the folder mixes two models.
  static void check_no_extra_shard(const fs::path& folder, const std::set<std::string>& names) {
    static const std::regex kShard("model-[0-9]+-of-[0-9]+\\.safetensors");
    for (const auto& item : fs::directory_iterator(folder)) {
      const std::string name = item.path().filename().string();
      if (std::regex_match(name, kShard) && names.count(name) == 0) {
        throw Error(ErrorCode::mismatch, {.where = folder.string(),
                                          .expected = "only shards that the list names",
                                          .got = in_quotes(name) + ", which is not in " + std::string(kIndexName),
                                          .advice = "remove it, or fetch the list again"});
      }
    }
  }

  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::unordered_map<std::string_view, size_t> owner_;  // views of the files' own names
};

class HfFolder final : public ModelFiles {
 public:
  explicit HfFolder(const fs::path& folder) : path_(folder), config_path_((folder / "config.json").string()) {
    if (!fs::exists(config_path_)) {
      throw Error(ErrorCode::not_found, {.where = folder.string(),
                                         .expected = "a folder with config.json and safetensors weights",
                                         .got = "no config.json",
                                         .advice = "give a Hugging Face model folder or a GGUF file"});
    }
    config_ = read_json_file(config_path_);
    if (!config_.is_object()) throw_bad_file(config_path_, "no JSON object", "a model's configuration");
    const auto type = config_.find("model_type");
    if (type == config_.end() || !type->is_string()) {
      throw_bad_file(config_path_, "missing key 'model_type'", "the model's family");
    }
    architecture_ = type->get<std::string>();
    const auto text_config = config_.find("text_config");
    if (text_config != config_.end() && text_config->is_object()) text_config_ = &*text_config;
    shards_ = std::make_unique<Shards>(folder);
  }

  bool is_gguf() const noexcept override { return false; }
  const fs::path& path() const noexcept override { return path_; }
  const std::string& architecture() const noexcept override { return architecture_; }

  std::optional<int64_t> integer(Names key) const override {
    const json* value = find(key.hf);
    return value == nullptr ? std::nullopt : std::optional(to_integer(*value, key.hf));
  }
  std::optional<double> real(Names key) const override {
    const json* value = find(key.hf);
    return value == nullptr ? std::nullopt : std::optional(to_real(*value, key.hf));
  }
  std::optional<bool> boolean(Names key) const override {
    const json* value = find(key.hf);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) throw_wrong_type(key.hf, *value, "true or false");
    return value->get<bool>();
  }
  std::optional<std::string> text(Names key) const override {
    const json* value = find(key.hf);
    return value == nullptr ? std::nullopt : std::optional<std::string>(to_text(*value, key.hf));
  }
  std::optional<std::vector<int64_t>> integers(Names key) const override {
    return list<int64_t>(key.hf, [&](const json& item) {
      return item.is_boolean() ? int64_t{item.get<bool>()} : to_integer(item, key.hf);
    });
  }
  std::optional<std::vector<double>> reals(Names key) const override {
    return list<double>(key.hf, [&](const json& item) { return to_real(item, key.hf); });
  }
  std::optional<std::vector<std::string>> texts(Names key) const override {
    return list<std::string>(key.hf, [&](const json& item) { return std::string(to_text(item, key.hf)); });
  }
  std::optional<std::vector<std::string_view>> text_views(Names key) const override {
    return list<std::string_view>(key.hf, [&](const json& item) { return to_text(item, key.hf); });
  }

  Tensor find_tensor(Names name, int64_t layer) const override {
    if (name.hf.empty()) return {};
    for (const std::string& candidate : spellings(with_layer(name.hf, layer))) {
      if (const SafetensorsFile* file = shards_->find(candidate)) return file->tensor(candidate);
    }
    return {};
  }
  std::vector<std::string> tensor_names() const override {
    std::vector<std::string> names;
    for (const auto& file : shards_->files()) {
      for (const SafetensorsEntry& entry : file->entries()) names.push_back(entry.name);
    }
    return names;
  }
  void release(const Tensor& tensor) const noexcept override {
    for (const auto& file : shards_->files()) file->file().release(tensor.raw(), tensor.bytes());
  }
  int64_t file_bytes() const noexcept override {
    int64_t sum = 0;
    for (const auto& file : shards_->files()) sum += static_cast<int64_t>(file->file().bytes().size());
    return sum;
  }

 private:
  // The text model inside a multi-modal one carries a prefix, which changed over time.
  static std::vector<std::string> spellings(const std::string& name) {
    std::vector<std::string> out = {name};
    constexpr std::string_view kModel = "model.";
    if (name.starts_with(kModel)) out.push_back("model.language_model." + name.substr(kModel.size()));
    out.push_back("language_model." + name);
    return out;
  }

  const json* walk(const json* value, std::string_view whole) const {
    std::string_view path = whole;
    while (value != nullptr && !path.empty()) {
      const size_t slash = path.find('/');
      const std::string step(path.substr(0, slash));
      path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
      if (value->is_null()) return nullptr;
      if (!value->is_object()) throw_wrong_type(whole.substr(0, whole.size() - path.size()), *value, "an object");
      const auto found = value->find(step);
      value = found == value->end() ? nullptr : &*found;
    }
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  // A key of the text model; where the text_config does not have it, the outermost config's ("tie_word_embeddings").
  const json* find(std::string_view key) const {
    if (key.empty()) return nullptr;
    if (key.front() == '/') return walk(&config_, key.substr(1));
    const json* value = text_config_ == nullptr ? nullptr : walk(text_config_, key);
    return value == nullptr ? walk(&config_, key) : value;
  }

  [[noreturn]] void throw_wrong_type(std::string_view key, const json& value, std::string_view expected) const {
    throw_bad_file(config_path_, fmt::format("key {} holds {}", in_quotes(key), value.type_name()),
                   std::string(expected));
  }
  int64_t to_integer(const json& value, std::string_view key) const {
    if (!value.is_number_integer()) throw_wrong_type(key, value, "an integer");
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      throw_bad_file(config_path_, fmt::format("key {} = {}", in_quotes(key), value.get<uint64_t>()),
                     "an integer of at most 63 bits");
    }
    return value.get<int64_t>();
  }
  double to_real(const json& value, std::string_view key) const {
    if (!value.is_number()) throw_wrong_type(key, value, "a number");
    return value.get<double>();
  }
  std::string_view to_text(const json& value, std::string_view key) const {
    if (!value.is_string()) throw_wrong_type(key, value, "a text");
    return value.get_ref<const std::string&>();
  }
  template <class T, class Convert>
  std::optional<std::vector<T>> list(std::string_view key, Convert convert) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    std::vector<T> out;
    if (!value->is_array()) {
      out.push_back(convert(*value));
      return out;
    }
    for (const json& item : *value) out.push_back(convert(item));
    return out;
  }

  fs::path path_;
  std::string config_path_;
  json config_;
  const json* text_config_ = nullptr;
  std::string architecture_;
  std::unique_ptr<Shards> shards_;
};

}  // namespace

std::shared_ptr<const ModelFiles> open_hf_folder(const fs::path& folder) {
  try {
    return std::make_shared<HfFolder>(folder);
  } catch (const fs::filesystem_error& error) {
    throw_system_error(folder.string(), "cannot read the folder", error.code().value());
  }
}

}  // namespace slipring
