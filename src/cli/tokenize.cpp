// slipring tokenize: text on standard input to token ids.
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include <slipring/tokenizer.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "formats/model_files.h"

namespace slipring::cli {
namespace {

struct TokenizeFlags {
  std::string model;
  bool no_special = false;
  bool json = false;
  bool pieces = false;
};

void tokenize(const TokenizeFlags& flags) {
  const auto files = ModelFiles::open(flags.model.empty() ? default_model_path() : std::filesystem::path(flags.model));
  const auto tokenizer = Tokenizer::load(*files);
  const auto ids = tokenizer->encode(read_file("-"), flags.no_special ? ControlTokens::as_text : ControlTokens::parse);
  if (flags.json) {
    nlohmann::json out{{"ids", ids}};
    if (flags.pieces) {
      out["pieces"] = nlohmann::json::array();
      for (const TokenId id : ids) out["pieces"].push_back(valid_utf8(tokenizer->token_bytes(id, true)));
    }
    fmt::print("{}\n", to_text(out));
  } else if (flags.pieces) {
    for (const TokenId id : ids)
      fmt::print("{}\t{}\n", id, nlohmann::json(valid_utf8(tokenizer->token_bytes(id, true))).dump());
  } else {
    fmt::print("{}\n", fmt::join(ids, " "));
  }
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = app.add_subcommand("tokenize", "Token ids of the text on standard input; never adds BOS");
  command->add_option("-m,--model", flags->model, "GGUF file or Hugging Face folder")->type_name("PATH");
  command->add_flag("--no-special", flags->no_special, "Control tokens spelled in the text are text");
  command->add_flag("--json", flags->json, "Print {\"ids\": [...]}");
  command->add_flag("--pieces", flags->pieces, "Show the text of each token as well");
  command->callback([flags] { tokenize(*flags); });
}

}  // namespace slipring::cli
