#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include <slipring/error.h>

#include "formats/json_file.h"
#include "formats/mapped_file.h"
#include "formats/model_files.h"
#include "text/hf_stages.h"
#include "text/vocabulary.h"

namespace slipring {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Vocabularies of a quarter of a million tokens come with twice as many merges: 30 MB and more of JSON.
constexpr JsonLimits tokenizer_limits{.max_bytes = int64_t{256} << 20, .max_depth = 64};
// Python reads the files beside it, and people edit them: there the last of equal keys counts, as it does in Python.
constexpr JsonLimits config_limits{.max_bytes = int64_t{256} << 20, .max_depth = 64, .unique_keys = false};
// Ids without a token, beside as many as there are tokens: vocabularies are padded.
constexpr size_t always_allowed_holes = 65536;

[[noreturn]] void bad_field(const std::string& where, const std::string& field, std::string expected, std::string got) {
  throw Error(ErrorCode::bad_file, {where + ": " + field, std::move(expected), std::move(got), ""});
}

// What cannot be looked at, as a link that leads to itself, is no file that is not there.
bool is_there(const fs::path& path) {
  std::error_code problem;
  const fs::file_type type = fs::status(path, problem).type();
  if (type != fs::file_type::not_found && problem) {
    throw Error(ErrorCode::io, {path.string(), "a file that can be read", problem.message(), ""});
  }
  return type != fs::file_type::not_found;
}

json optional_object(const fs::path& path) {
  if (!is_there(path)) return json::object();
  json value = read_json_file(path, config_limits);
  if (!value.is_object()) bad_field(path.string(), "the file", "an object", value.type_name());
  return value;
}

// Puts a token at its id. Ids may leave holes (padding), but not so many that a small file asks for much memory.
void place(Vocabulary& vocabulary, const std::string& field, const json& id, const std::string& text, size_t most_ids) {
  if (!id.is_number_integer() || (id.is_number_integer() && !id.is_number_unsigned() && id.get<int64_t>() < 0) ||
      id.get<uint64_t>() >= most_ids) {
    bad_field(vocabulary.where, field, "an id below " + std::to_string(most_ids), printable(id));
  }
  const auto index = id.get<size_t>();
  if (index >= vocabulary.tokens.size()) {
    vocabulary.tokens.resize(index + 1);
    vocabulary.kinds.resize(index + 1, TokenKind::unused);
  }
  vocabulary.tokens[index] = text;
}

void read_merges(const json& model, Vocabulary& vocabulary) {
  const json& merges = object_field(model, "merges", vocabulary.where);
  if (!merges.is_array()) bad_field(vocabulary.where, "model.merges", "an array", merges.type_name());
  vocabulary.merges.reserve(merges.size());
  for (const json& merge : merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      vocabulary.merges.push_back({merge[0].get<std::string>(), merge[1].get<std::string>()});
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : std::string();
    const size_t gap = text.find(' ');
    if (gap == std::string::npos || gap == 0 || gap + 1 == text.size()) {
      bad_field(vocabulary.where, "model.merges", "pairs of tokens", printable(merge));
    }
    vocabulary.merges.push_back({text.substr(0, gap), text.substr(gap + 1)});
  }
}

void read_model(const json& model, size_t added_count, Vocabulary& vocabulary) {
  const std::string& where = vocabulary.where;
  const std::string type = text_field(model, "type", where, "BPE");
  if (type != "BPE") throw Error(ErrorCode::unsupported, {where + ": model.type", "\"BPE\"", "\"" + type + "\"", ""});
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!text_field(model, name, where, "").empty()) {
      throw Error(ErrorCode::unsupported, {where + ": model." + name, "none", printable(model[name]), ""});
    }
  }
  const json& vocab = object_field(model, "vocab", where);
  if (!vocab.is_object()) bad_field(where, "model.vocab", "an object", vocab.type_name());
  const size_t most_ids = 2 * (vocab.size() + added_count) + always_allowed_holes;
  for (const auto& [text, id] : vocab.items()) {
    place(vocabulary, "model.vocab", id, text, most_ids);
    vocabulary.kinds[id.get<size_t>()] = TokenKind::normal;
  }
  read_merges(model, vocabulary);
  vocabulary.byte_fallback = flag_field(model, "byte_fallback", where, false);
  vocabulary.fuse_unknown = flag_field(model, "fuse_unk", where, false);
  vocabulary.whole_piece_first = flag_field(model, "ignore_merges", where, false);
  if (vocabulary.byte_fallback) {
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      if (parse_byte_token(vocabulary.tokens[id])) vocabulary.kinds[id] = TokenKind::byte;
    }
  }
  const std::string unknown = text_field(model, "unk_token", where, "");
  if (!unknown.empty()) {
    const auto found = vocab.find(unknown);
    if (found == vocab.end()) bad_field(where, "model.unk_token", "a token of the vocabulary", "\"" + unknown + "\"");
    vocabulary.unknown = found->get<TokenId>();
  }
}

void read_added_tokens(const json& added, const json& in_model, Vocabulary& vocabulary) {
  const std::string& where = vocabulary.where;
  Regex::Effort effort;
  std::unordered_map<int64_t, std::string> contents;
  for (const json& entry : added) {
    if (!entry.is_object() || !entry.contains("id"))
      bad_field(where, "added_tokens", "objects with an id", printable(entry));
    const std::string content = text_field(entry, "content", where, "");
    place(vocabulary, "added_tokens", entry["id"], content,
          2 * (in_model.size() + added.size()) + always_allowed_holes);
    const auto id = entry["id"].get<TokenId>();
    if (const auto first = contents.try_emplace(id, content).first->second; first != content) {
      bad_field(where, "added_tokens", "one token with id " + std::to_string(id),
                printable(first) + " and " + printable(content));
    }
    vocabulary.outside_model.resize(vocabulary.tokens.size(), false);
    if (!in_model.contains(content)) vocabulary.outside_model[static_cast<size_t>(id)] = true;
    const bool control = flag_field(entry, "special", where, false);
    vocabulary.kinds[static_cast<size_t>(id)] = control ? TokenKind::control : TokenKind::user_defined;
    AddedToken token{id,
                     content,
                     control,
                     flag_field(entry, "lstrip", where, false),
                     flag_field(entry, "rstrip", where, false),
                     flag_field(entry, "single_word", where, false)};
    if (flag_field(entry, "normalized", where, false)) {
      if (!vocabulary.normalizer.empty()) token.content = vocabulary.normalizer.apply(content, true, effort);
      insert_added(vocabulary, "added_tokens", std::move(token), vocabulary.added_normalized);
    } else {
      insert_added(vocabulary, "added_tokens", std::move(token), vocabulary.added);
    }
  }
}

std::optional<TokenId> id_of(const Vocabulary& vocabulary, const std::string& token) {
  for (size_t id = 0; id < vocabulary.tokens.size() && !token.empty(); ++id) {
    if (vocabulary.tokens[id] == token) return static_cast<TokenId>(id);
  }
  return std::nullopt;
}

// "bos_token" and kin: a string, or an added token written out.
std::string special_text(const json& config, const char* name, const std::string& where) {
  const auto found = config.find(name);
  if (found == config.end() || found->is_null()) return "";
  if (found->is_object()) return text_field(*found, "content", where, "");
  return text_field(config, name, where, "");
}

// A number or a list of numbers.
std::vector<TokenId> ids_in(const json& config, const char* name, const std::string& where, size_t count) {
  std::vector<TokenId> ids;
  const auto found = config.find(name);
  if (found == config.end() || found->is_null()) return ids;
  for (const json& id : found->is_array() ? *found : json::array({*found})) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<uint64_t>() >= count) {
      bad_field(where, name, "ids below " + std::to_string(count), printable(id));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

// Whether the post-processor puts the BOS token in front of a single text.
bool template_adds_bos(const json& processor, const std::string& bos) {
  if (!processor.is_object() || bos.empty()) return false;
  if (const auto inner = processor.find("processors"); inner != processor.end() && inner->is_array()) {
    for (const json& each : *inner) {
      if (template_adds_bos(each, bos)) return true;
    }
  }
  const auto single = processor.find("single");
  if (single == processor.end() || !single->is_array() || single->empty() || !(*single)[0].is_object()) return false;
  const auto special = (*single)[0].find("SpecialToken");
  return special != (*single)[0].end() && special->is_object() && special->value("id", json()) == json(bos);
}

// chat_template.jinja comes before tokenizer_config.json, whose entry is one template or a list of named ones.
std::optional<std::string> read_chat_template(const fs::path& folder, const json& config, const std::string& where) {
  if (const fs::path path = folder / "chat_template.jinja"; is_there(path)) {
    return checked_template(MappedFile::open(path)->text(), path.string());
  }
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  const std::string field = where + ": chat_template";
  if (found->is_string()) return checked_template(found->get_ref<const std::string&>(), field);
  if (!found->is_array()) bad_field(where, "chat_template", "a string or a list", found->type_name());
  std::optional<std::string> chosen;
  for (const json& entry : *found) {
    if (!entry.is_object()) bad_field(where, "chat_template", "objects with name and template", printable(entry));
    const std::string text = text_field(entry, "template", where, "");
    if (!chosen || text_field(entry, "name", where, "") == "default") chosen = text;
  }
  if (chosen) chosen = checked_template(*chosen, field);
  return chosen;
}

void read_special_ids(const fs::path& folder, const ModelFiles& files, const json& config, const json& tokenizer,
                      Vocabulary& vocabulary) {
  const std::string where = (folder / "tokenizer_config.json").string();
  const size_t count = vocabulary.tokens.size();
  const auto range_error = [&](const char* name, int64_t id) {
    bad_field((folder / "config.json").string(), name, "an id below " + std::to_string(count), std::to_string(id));
  };
  const json generation = optional_object(folder / "generation_config.json");
  const std::string generation_where = (folder / "generation_config.json").string();

  const std::string bos = special_text(config, "bos_token", where);
  vocabulary.bos = id_of(vocabulary, bos);
  if (!vocabulary.bos) {
    for (const TokenId id : ids_in(generation, "bos_token_id", generation_where, count)) vocabulary.bos = id;
  }
  const auto add_bos = config.find("add_bos_token");
  vocabulary.add_bos = add_bos != config.end() && add_bos->is_boolean()
                           ? add_bos->get<bool>()
                           : template_adds_bos(tokenizer.value("post_processor", json()), bos);

  std::vector<TokenId> ends = ids_in(generation, "eos_token_id", generation_where, count);
  const bool named = !ends.empty();
  for (const int64_t id : files.integers({"eos_token_id", ""}).value_or(std::vector<int64_t>())) {
    if (id < 0 || static_cast<uint64_t>(id) >= count) range_error("eos_token_id", id);
    ends.push_back(static_cast<TokenId>(id));
  }
  if (const auto id = id_of(vocabulary, special_text(config, "eos_token", where))) ends.push_back(*id);
  vocabulary.end_of_turn = std::move(ends);
  if (!named && !vocabulary.end_of_turn.empty()) add_turn_ends_by_name(vocabulary);
}

}  // namespace

Vocabulary read_hf_vocabulary(const ModelFiles& files) {
  const fs::path folder = fs::is_directory(files.path()) ? files.path() : files.path().parent_path();
  const fs::path path = folder / "tokenizer.json";
  Vocabulary vocabulary;
  vocabulary.where = path.string();
  const json tokenizer = read_json_file(path, tokenizer_limits);
  if (!tokenizer.is_object()) bad_field(vocabulary.where, "the file", "an object", tokenizer.type_name());

  const json& model = object_field(tokenizer, "model", vocabulary.where);
  if (!model.is_object()) bad_field(vocabulary.where, "model", "an object", model.type_name());
  const json added = tokenizer.value("added_tokens", json::array());
  if (!added.is_array()) bad_field(vocabulary.where, "added_tokens", "an array", added.type_name());
  read_model(model, added.size(), vocabulary);
  read_hf_normalizer(tokenizer.value("normalizer", json()), vocabulary);
  read_hf_pre_tokenizer(tokenizer.value("pre_tokenizer", json()), vocabulary);
  read_hf_decoder(tokenizer.value("decoder", json()), vocabulary);
  read_added_tokens(added, model["vocab"], vocabulary);

  const json config = optional_object(folder / "tokenizer_config.json");
  read_special_ids(folder, files, config, tokenizer, vocabulary);
  vocabulary.chat_template = read_chat_template(folder, config, (folder / "tokenizer_config.json").string());
  return vocabulary;
}

}  // namespace slipring
