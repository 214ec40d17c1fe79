#include <algorithm>
#include <cmath>

#include <slipring/error.h>

#include "formats/model_files.h"
#include "text/split_rules.h"
#include "text/vocabulary.h"

namespace slipring {
namespace {

// A key that all GGUF files share, whatever their architecture.
Names key(std::string_view name) {
  return {"", name};
}

std::string in_quotes(std::string_view text) {
  return std::string(1, '"').append(text).append(1, '"');
}

[[noreturn]] void bad_key(const ModelFiles& files, std::string_view name, std::string expected, std::string got) {
  throw Error(ErrorCode::bad_file,
              {files.path().string() + ": " + std::string(name.substr(1)), std::move(expected), std::move(got), ""});
}

std::optional<TokenId> read_id(const ModelFiles& files, std::string_view name, size_t count) {
  const auto id = files.integer(key(name));
  if (!id) return std::nullopt;
  if (*id < 0 || static_cast<size_t>(*id) >= count) {
    bad_key(files, name, "an id below " + std::to_string(count), std::to_string(*id));
  }
  return static_cast<TokenId>(*id);
}

std::vector<TokenKind> read_kinds(const ModelFiles& files, size_t count) {
  constexpr std::string_view name = "/tokenizer.ggml.token_type";
  const auto numbers = files.integers(key(name));
  if (!numbers) return std::vector<TokenKind>(count, TokenKind::normal);
  if (numbers->size() != count) {
    bad_key(files, name, std::to_string(count) + " entries, one a token", std::to_string(numbers->size()));
  }
  std::vector<TokenKind> kinds;
  kinds.reserve(count);
  for (const int64_t number : *numbers) {
    // 0 is "undefined"; it is treated as an ordinary token.
    if (number < 0 || number > 6) bad_key(files, name, "kinds 0 to 6", std::to_string(number));
    kinds.push_back(number == 0 ? TokenKind::normal : static_cast<TokenKind>(number));
  }
  return kinds;
}

// Some files leave the ids that they name as control tokens among the ordinary ones.
void mark_control(Vocabulary& vocabulary, TokenId id) {
  TokenKind& kind = vocabulary.kinds[static_cast<size_t>(id)];
  const std::string& text = vocabulary.tokens[static_cast<size_t>(id)];
  const bool bracketed = text.size() > 2 && (text.front() == '<' || text.front() == '[') &&
                         (text.back() == '>' || text.back() == ']') && text != "<>" && text != "[]";
  if (bracketed && (kind == TokenKind::normal || kind == TokenKind::user_defined)) kind = TokenKind::control;
}

void read_special_ids(const ModelFiles& files, Vocabulary& vocabulary) {
  const size_t count = vocabulary.tokens.size();
  vocabulary.bos = read_id(files, "/tokenizer.ggml.bos_token_id", count);
  const auto eos = read_id(files, "/tokenizer.ggml.eos_token_id", count);
  const auto eot = read_id(files, "/tokenizer.ggml.eot_token_id", count);
  const auto eom = read_id(files, "/tokenizer.ggml.eom_token_id", count);
  if (vocabulary.bos) mark_control(vocabulary, *vocabulary.bos);
  for (const auto& id : {eos, eot, eom}) {
    if (!id) continue;
    mark_control(vocabulary, *id);
    vocabulary.end_of_turn.push_back(*id);
  }
  if (eos && !eot) add_turn_ends_by_name(vocabulary);
}

void add_tokens(const ModelFiles& files, Vocabulary& vocabulary) {
  // Phi-3's control tokens take the white space behind them along; its GGUF files have no key for that.
  const bool phi3 = files.architecture() == "phi3" && vocabulary.spelling == Spelling::sentencepiece;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const TokenKind kind = vocabulary.kinds[id];
    const std::string& text = vocabulary.tokens[id];
    const bool control = kind == TokenKind::control || kind == TokenKind::unknown;
    if (!control && kind != TokenKind::user_defined) continue;
    const bool strips = phi3 && control && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
    insert_added(vocabulary, "tokenizer.ggml.tokens", {static_cast<TokenId>(id), text, control, false, strips, false},
                 vocabulary.added);
  }
}

void read_sentencepiece(const ModelFiles& files, Vocabulary& vocabulary) {
  const size_t count = vocabulary.tokens.size();
  constexpr std::string_view name = "/tokenizer.ggml.scores";
  const auto scores = files.reals(key(name));
  if (!scores) bad_key(files, name, "a score for each token", "no such key");
  if (scores->size() != count) {
    bad_key(files, name, std::to_string(count) + " entries, one a token", std::to_string(scores->size()));
  }
  vocabulary.scores.assign(scores->begin(), scores->end());
  vocabulary.spelling = Spelling::sentencepiece;
  vocabulary.byte_fallback = true;
  vocabulary.fuse_unknown = true;
  vocabulary.unknown = read_id(files, "/tokenizer.ggml.unknown_token_id", count);
  vocabulary.add_bos = files.boolean(key("/tokenizer.ggml.add_bos_token")).value_or(true);
  const bool add_space = files.boolean(key("/tokenizer.ggml.add_space_prefix")).value_or(true);
  vocabulary.drops_leading_space = add_space;
  vocabulary.prefix_behind_user_defined = false;  // SentencePiece has them in the middle of its one normalised text
  if (add_space) {
    vocabulary.normalizer.add({NormalizerStep::Kind::prepend, nullptr, "", std::string(space_mark), false, false});
  }
  vocabulary.normalizer.add({NormalizerStep::Kind::replace, nullptr, " ", std::string(space_mark), false, false});
}

void read_byte_level(const ModelFiles& files, Vocabulary& vocabulary) {
  constexpr std::string_view pre_name = "/tokenizer.ggml.pre";
  const std::string pre = files.text(key(pre_name)).value_or("default");
  const auto rules = split_rules(pre);
  if (!rules) {
    throw Error(ErrorCode::unsupported, {files.path().string() + ": tokenizer.ggml.pre",
                                         "a split rule that slipring knows", in_quotes(pre), ""});
  }
  for (const std::string_view pattern : rules->patterns) {
    PreTokenizerStage stage;
    stage.pattern = std::make_shared<Regex>(pattern, "tokenizer.ggml.pre " + pre);
    vocabulary.pre_tokenizer.add(std::move(stage));
  }
  vocabulary.whole_piece_first = rules->whole_piece_first;
  vocabulary.add_bos = files.boolean(key("/tokenizer.ggml.add_bos_token")).value_or(rules->add_bos);

  constexpr std::string_view merges_name = "/tokenizer.ggml.merges";
  const auto merges = files.text_views(key(merges_name));
  if (!merges) bad_key(files, merges_name, "the list of merges", "no such key");
  // Files with merges whose tokens were cut from the vocabulary are about and run elsewhere.
  vocabulary.merges_may_be_unknown = true;
  vocabulary.merges.reserve(merges->size());
  for (const std::string_view merge : *merges) {
    const size_t gap = merge.find(' ', 1);
    if (gap == std::string_view::npos || gap + 1 == merge.size() || gap == 0) {
      bad_key(files, merges_name, "two tokens with a space between them", in_quotes(merge));
    }
    vocabulary.merges.push_back({std::string(merge.substr(0, gap)), std::string(merge.substr(gap + 1))});
  }
}

}  // namespace

Vocabulary read_gguf_vocabulary(const ModelFiles& files) {
  Vocabulary vocabulary;
  vocabulary.where = files.path().string();
  const std::string model = files.text(key("/tokenizer.ggml.model")).value_or("");
  if (model != "gpt2" && model != "llama") {
    // A file without any vocabulary is no broken file: drafters need none of their own.
    throw Error(model.empty() ? ErrorCode::not_found : ErrorCode::unsupported,
                {vocabulary.where + ": tokenizer.ggml.model", "\"gpt2\" or \"llama\"",
                 model.empty() ? "no such key" : in_quotes(model), "use a model with a BPE tokenizer"});
  }
  constexpr std::string_view tokens_name = "/tokenizer.ggml.tokens";
  auto tokens = files.texts(key(tokens_name));
  if (!tokens || tokens->empty())
    bad_key(files, tokens_name, "the list of tokens", tokens ? "no tokens" : "no such key");
  vocabulary.tokens = std::move(*tokens);
  vocabulary.kinds = read_kinds(files, vocabulary.tokens.size());
  if (model == "llama") {
    read_sentencepiece(files, vocabulary);
  } else {
    read_byte_level(files, vocabulary);
  }
  read_special_ids(files, vocabulary);
  add_tokens(files, vocabulary);
  if (const auto text = files.text(key("/tokenizer.chat_template"))) {
    vocabulary.chat_template = checked_template(*text, vocabulary.where + ": tokenizer.chat_template");
  }
  return vocabulary;
}

}  // namespace slipring
