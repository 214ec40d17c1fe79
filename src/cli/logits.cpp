// slipring logits: the logits of every token of a sequence, as a safetensors file: for parity checks against other
// engines.
#include <cstring>
#include <fmt/format.h>
#include <memory>

#include <slipring/error.h>
#include <slipring/session.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/say.h"
#include "formats/safetensors_writer.h"

namespace slipring::cli {
namespace {

struct LogitsFlags {
  ModelFlags model;
  SessionFlags session;
  std::string tokens;
  std::string tokens_file;
  std::string output;
};

void logits(const LogitsFlags& flags) {
  catch_interrupts();
  const std::string text = flags.tokens_file.empty() ? flags.tokens : read_file(flags.tokens_file);
  const auto ids = parse_token_ids(text, flags.tokens_file.empty() ? "--tokens" : flags.tokens_file);
  check_output(flags.output, {flags.model.model, flags.model.program});
  const auto model = flags.model.load(flags.session.wanted_context());
  Session session(model, flags.session.options(model->spec(), flags.model.threads));
  const int64_t vocab = model->spec().vocab_size;
  Tensor all(DType::F32, {static_cast<int64_t>(ids.size()), vocab});
  ProgressLine progress("computing logits");
  session.score(
      ids,
      [&](int64_t i, std::span<const float> row) {
        std::memcpy(all.data<float>() + i * vocab, row.data(), row.size_bytes());
      },
      [&](int64_t done, int64_t total) {
        progress.show(done, total);
        return !interrupted();
      });
  write_safetensors(flags.output, {{"logits", all}});
  say("wrote logits {} to {}\n", all.shape().to_string(), flags.output);
}

}  // namespace

void add_logits(CLI::App& app) {
  auto flags = std::make_shared<LogitsFlags>();
  CLI::App* command = app.add_subcommand("logits", "Write the logits of every token of a sequence, for parity checks");
  flags->model.add_with_program(*command);
  flags->session.add(*command);
  auto* source = command->add_option_group("tokens", "The sequence");
  source->add_option("--tokens", flags->tokens, "Token ids: \"1 2 3\"")->type_name("IDS");
  source->add_option("--tokens-file", flags->tokens_file, "File of token ids; - is standard input")->type_name("FILE");
  source->require_option(1);
  command->add_option("-o,--output", flags->output, "safetensors file to write: logits [T, vocabulary] float32")
      ->type_name("FILE")
      ->required();
  command->callback([flags] { logits(*flags); });
}

}  // namespace slipring::cli
