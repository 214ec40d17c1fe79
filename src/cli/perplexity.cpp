// slipring perplexity: how well a model predicts a text.
#include <chrono>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include <slipring/perplexity.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/say.h"

namespace slipring::cli {
namespace {

struct PerplexityFlags {
  ModelFlags model;
  SessionFlags session;
  PerplexityOptions options;
  std::string file;
  std::string tokens_file;
  bool json = false;
  bool per_token = false;
};

void run_perplexity(const PerplexityFlags& flags) {
  catch_interrupts();
  const std::string text = read_file(flags.tokens_file.empty() ? flags.file : flags.tokens_file);
  const auto model = flags.model.load(flags.session.wanted_context());
  const auto ids =
      flags.tokens_file.empty() ? model->tokenizer().encode(text) : parse_token_ids(text, flags.tokens_file);
  SessionOptions session_options = flags.session.options(model->spec(), flags.model.threads);
  PerplexityOptions options = flags.options;
  options.context = session_options.context;
  session_options.context = 0;
  Session session(model, session_options);
  ProgressLine progress("scoring");
  const auto start = std::chrono::steady_clock::now();
  const PerplexityResult result = perplexity(session, ids, options, [&](int64_t done, int64_t total) {
    progress.show(done, total);
    return !interrupted();
  });
  progress.clear();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string method =
      fmt::format("every token scored once in windows of {} tokens, {} of them shared with the window before; BOS {}",
                  options.context, options.overlap,
                  model->has_tokenizer() && model->tokenizer().add_bos() ? "first in each, never scored"
                                                                         : "not used by this model");
  if (flags.json) {
    nlohmann::json out{{"tokens", result.nll.size()},
                       {"mean_nll", result.mean_nll()},
                       {"perplexity", result.perplexity()},
                       {"windows", result.windows},
                       {"method", method},
                       {"seconds", seconds}};
    if (flags.per_token) out["nll"] = result.nll;
    fmt::print("{}\n", to_text(out));
    return;
  }
  fmt::print("perplexity {:.4f}\nmean NLL   {:.6f} nats a token\ntokens     {} scored, in {} windows\nmethod     {}\n",
             result.perplexity(), result.mean_nll(), result.nll.size(), result.windows, method);
  say("{:.1f} tokens/s\n", static_cast<double>(result.nll.size()) / seconds);
}

}  // namespace

void add_perplexity(CLI::App& app) {
  auto flags = std::make_shared<PerplexityFlags>();
  CLI::App* command = app.add_subcommand("perplexity", "How well a model predicts a text");
  flags->model.add(*command);
  flags->session.add(*command, ContextDefault::capped);
  auto* source = command->add_option_group("text", "What to score");
  source->add_option("-f,--file", flags->file, "Text file; - is standard input")->type_name("FILE");
  source->add_option("--tokens-file", flags->tokens_file, "File of token ids, without BOS")->type_name("FILE");
  source->require_option(1);
  command
      ->add_option("--overlap", flags->options.overlap,
                   "Tokens a window shares with the one before it, not scored again")
      ->type_name("N")
      ->capture_default_str();
  auto* json = command->add_flag("--json", flags->json, "One JSON object");
  command->add_flag("--per-token", flags->per_token, "With --json: the negative log likelihood of each token")
      ->needs(json);
  command->callback([flags] { run_perplexity(*flags); });
}

}  // namespace slipring::cli
