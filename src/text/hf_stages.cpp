#include "text/hf_stages.h"

#include <nlohmann/json.hpp>

#include <slipring/error.h>

#include "text/split_rules.h"

namespace slipring {
namespace {

using nlohmann::json;

[[noreturn]] void unsupported(const std::string& where, const std::string& field, const std::string& got) {
  throw Error(ErrorCode::unsupported, {where + ": " + field, "a type that slipring has", got, ""});
}

// Each stage costs a walk over the text and its pattern a compilation. Known tokenizers have up to ten.
constexpr size_t most_stages = 64;

void check_count(const std::string& where, const std::string& field, size_t stages) {
  if (stages < most_stages) return;
  throw Error(ErrorCode::unsupported,
              {where + ": " + field, "at most " + std::to_string(most_stages) + " stages", "more", ""});
}

std::string type_of(const json& field, const std::string& name, const std::string& where) {
  if (!field.is_object()) throw Error(ErrorCode::bad_file, {where + ": " + name, "an object", field.type_name(), ""});
  return text_field(field, "type", where, "");
}

const json& list_of(const json& field, const char* name, const std::string& where) {
  const json& list = object_field(field, name, where);
  if (!list.is_array()) throw Error(ErrorCode::bad_file, {where + ": " + name, "an array", list.type_name(), ""});
  return list;
}

struct Pattern {
  std::string text;
  bool literal = false;
};

// {"Regex": "..."} or {"String": "..."}
Pattern pattern_of(const json& field, const std::string& where) {
  const json& pattern = object_field(field, "pattern", where);
  if (pattern.is_object() && pattern.contains("Regex")) return {text_field(pattern, "Regex", where, ""), false};
  if (pattern.is_object() && pattern.contains("String")) {
    Pattern result{text_field(pattern, "String", where, ""), true};
    if (result.text.empty()) throw Error(ErrorCode::bad_file, {where + ": pattern", "a string", "an empty one", ""});
    return result;
  }
  throw Error(ErrorCode::bad_file, {where + ": pattern", "a Regex or a String", printable(pattern), ""});
}

void add_normalizer(const json& field, Vocabulary& vocabulary) {
  const std::string& where = vocabulary.where;
  const std::string type = type_of(field, "normalizer", where);
  if (type == "Sequence") {
    for (const json& each : list_of(field, "normalizers", where)) add_normalizer(each, vocabulary);
    return;
  }
  check_count(where, "normalizer", vocabulary.normalizer.size());
  NormalizerStep step;
  if (type == "Replace") {
    const Pattern pattern = pattern_of(field, where);
    step.kind = NormalizerStep::Kind::replace;
    if (pattern.literal) {
      step.from = pattern.text;
    } else {
      step.pattern = std::make_shared<Regex>(pattern.text, where + ": normalizer");
    }
    step.text = text_field(field, "content", where, "");
  } else if (type == "Prepend") {
    step.kind = NormalizerStep::Kind::prepend;
    step.text = text_field(field, "prepend", where, "");
  } else if (type == "Strip") {
    step.kind = NormalizerStep::Kind::strip;
    step.strip_left = flag_field(field, "strip_left", where, true);
    step.strip_right = flag_field(field, "strip_right", where, true);
  } else if (type == "NFC") {
    step.kind = NormalizerStep::Kind::compose;
  } else {
    unsupported(where, "normalizer", "\"" + type + "\"");
  }
  vocabulary.normalizer.add(std::move(step));
}

SplitBehavior behavior_of(const json& field, const std::string& where) {
  const std::string name = text_field(field, "behavior", where, "Isolated");
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  unsupported(where, "pre_tokenizer.behavior", "\"" + name + "\"");
}

void add_split(Vocabulary& vocabulary, std::string_view pattern, SplitBehavior behavior, bool invert = false) {
  PreTokenizerStage stage;
  stage.pattern = std::make_shared<Regex>(pattern, vocabulary.where + ": pre_tokenizer");
  stage.behavior = behavior;
  stage.invert = invert;
  vocabulary.pre_tokenizer.add(std::move(stage));
}

void add_prefix(Vocabulary& vocabulary, std::string_view prefix, bool only_first) {
  PreTokenizerStage stage;
  stage.kind = PreTokenizerStage::Kind::prefix;
  stage.text = prefix;
  stage.only_first = only_first;
  vocabulary.pre_tokenizer.add(std::move(stage));
}

// "always", "first" or "never"; older files have add_prefix_space instead.
std::string prepend_scheme(const json& field, const std::string& where) {
  return text_field(field, "prepend_scheme", where,
                    flag_field(field, "add_prefix_space", where, true) ? "always" : "never");
}

void add_metaspace(const json& field, Vocabulary& vocabulary) {
  const std::string& where = vocabulary.where;
  const std::string mark = text_field(field, "replacement", where, std::string(space_mark));
  if (mark != space_mark) unsupported(where, "pre_tokenizer.replacement", "\"" + mark + "\"");
  PreTokenizerStage spaces;
  spaces.kind = PreTokenizerStage::Kind::spaces;
  spaces.text = mark;
  vocabulary.pre_tokenizer.add(std::move(spaces));
  const std::string scheme = prepend_scheme(field, where);
  if (scheme != "never") add_prefix(vocabulary, mark, scheme == "first");
  if (flag_field(field, "split", where, true))
    add_split(vocabulary, regex_quote(mark), SplitBehavior::merged_with_next);
}

void add_pre_tokenizer(const json& field, Vocabulary& vocabulary, bool& byte_level) {
  const std::string& where = vocabulary.where;
  const std::string type = type_of(field, "pre_tokenizer", where);
  if (type == "Sequence") {
    for (const json& each : list_of(field, "pretokenizers", where)) add_pre_tokenizer(each, vocabulary, byte_level);
    return;
  }
  check_count(where, "pre_tokenizer", vocabulary.pre_tokenizer.size());
  // ByteLevel respells the text; a rule behind it would have to be run on that spelling.
  if (byte_level) unsupported(where, "pre_tokenizer", "\"" + type + "\" behind ByteLevel");
  if (type == "Split") {
    const Pattern pattern = pattern_of(field, where);
    add_split(vocabulary, pattern.literal ? regex_quote(pattern.text) : pattern.text, behavior_of(field, where),
              flag_field(field, "invert", where, false));
  } else if (type == "ByteLevel") {
    byte_level = true;
    if (flag_field(field, "add_prefix_space", where, true)) {
      add_prefix(vocabulary, " ", false);
      vocabulary.drops_leading_space = true;
    }
    if (flag_field(field, "use_regex", where, true)) add_split(vocabulary, gpt2_pattern, SplitBehavior::isolated);
  } else if (type == "Digits") {
    add_split(
        vocabulary, R"(\p{N})",
        flag_field(field, "individual_digits", where, false) ? SplitBehavior::isolated : SplitBehavior::contiguous);
  } else if (type == "Metaspace") {
    add_metaspace(field, vocabulary);
  } else if (type == "Whitespace") {
    const std::string word(rust_word_class);
    add_split(vocabulary, "[" + word + "]+|[^" + word + "\\s]+", SplitBehavior::removed, true);
  } else if (type == "WhitespaceSplit") {
    add_split(vocabulary, R"(\s)", SplitBehavior::removed);
  } else if (type == "Punctuation") {
    add_split(vocabulary, R"([\p{P}$+<=>^`|~])", behavior_of(field, where));
  } else {
    unsupported(where, "pre_tokenizer", "\"" + type + "\"");
  }
}

// What the decoder's steps are, so far as they matter here.
struct DecoderSteps {
  bool byte_level = false;
  bool space_mark = false;
  bool strips_first = false;
};

void read_decoder_step(const json& field, const std::string& where, DecoderSteps& steps) {
  const std::string type = type_of(field, "decoder", where);
  if (type == "Sequence") {
    for (const json& each : list_of(field, "decoders", where)) read_decoder_step(each, where, steps);
  } else if (type == "ByteLevel") {
    steps.byte_level = true;
  } else if (type == "Replace") {
    const Pattern pattern = pattern_of(field, where);
    if (pattern.text != space_mark || text_field(field, "content", where, "") != " ") {
      unsupported(where, "decoder", "Replace of " + printable(pattern.text));
    }
    steps.space_mark = true;
  } else if (type == "Metaspace") {
    steps.space_mark = true;
    steps.strips_first = prepend_scheme(field, where) != "never";
  } else if (type == "Strip") {
    if (text_field(field, "content", where, " ") != " ") unsupported(where, "decoder.content", printable(field));
    const auto start = field.find("start");
    steps.strips_first = start != field.end() && start->is_number_integer() && *start != 0;
  } else if (type != "ByteFallback" && type != "Fuse") {
    unsupported(where, "decoder", "\"" + type + "\"");
  }
}

}  // namespace

void read_hf_normalizer(const json& field, Vocabulary& vocabulary) {
  if (!field.is_null()) add_normalizer(field, vocabulary);
}

void read_hf_pre_tokenizer(const json& field, Vocabulary& vocabulary) {
  bool byte_level = false;
  if (!field.is_null()) add_pre_tokenizer(field, vocabulary, byte_level);
  vocabulary.spelling = byte_level ? Spelling::byte_level : Spelling::sentencepiece;
}

void read_hf_decoder(const json& field, Vocabulary& vocabulary) {
  DecoderSteps steps;
  if (!field.is_null()) read_decoder_step(field, vocabulary.where, steps);
  const bool byte_level = vocabulary.spelling == Spelling::byte_level;
  if (byte_level != steps.byte_level) {
    unsupported(vocabulary.where, "decoder", "one that does not undo the pre_tokenizer: " + printable(field));
  }
  if (!byte_level) {
    vocabulary.drops_leading_space = steps.strips_first;
    vocabulary.user_defined_is_literal = false;
  }
}

const json& object_field(const json& object, const char* name, const std::string& where) {
  const auto found = object.find(name);
  if (found == object.end()) throw Error(ErrorCode::bad_file, {where + ": " + name, "", "no such field", ""});
  return *found;
}

std::string text_field(const json& object, const char* name, const std::string& where, const std::string& otherwise) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return otherwise;
  if (!found->is_string()) {
    throw Error(ErrorCode::bad_file, {where + ": " + name, "a string", found->type_name(), ""});
  }
  return found->get<std::string>();
}

bool flag_field(const json& object, const char* name, const std::string& where, bool otherwise) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return otherwise;
  if (!found->is_boolean()) {
    throw Error(ErrorCode::bad_file, {where + ": " + name, "true or false", printable(*found), ""});
  }
  return found->get<bool>();
}

std::string printable(const json& value) {
  constexpr size_t longest = 80;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > longest) text = text.substr(0, longest) + "...";
  return text;
}

}  // namespace slipring
