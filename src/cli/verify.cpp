// slipring verify: the promises, checked on the user's own model.
#include "engine/verify.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include <slipring/error.h>
#include <slipring/generate.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/say.h"

namespace slipring::cli {
namespace {

struct VerifyFlags {
  ModelFlags model;
  std::string draft;
  std::string file;
  std::string kv = "f16";
  bool json = false;
};

const char* verdict(const VerifyCheck& check) {
  return check.cases == 0 ? "nothing to compare" : check.same ? "same bits" : "DIFFERENT";
}

void print_table(const Model& model, const std::vector<VerifyCheck>& checks) {
  fmt::print("{}: {} tokens\n\n", model.path().filename().string(), verify_length(model.spec()));
  fmt::print("{:<24} {:>6}  {:>18}  {:<18}  {}\n", "check", "cases", "largest difference", "verdict", "what");
  for (const VerifyCheck& check : checks) {
    fmt::print("{:<24} {:>6}  {:>18.3g}  {:<18}  {}\n", check.name, check.cases, check.largest, verdict(check),
               check.remark);
  }
}

void print_json(const Model& model, const std::vector<VerifyCheck>& checks, bool same) {
  nlohmann::json out{{"model", model.path().string()},
                     {"tokens", verify_length(model.spec())},
                     {"same", same},
                     {"checks", nlohmann::json::array()}};
  for (const VerifyCheck& check : checks) {
    out["checks"].push_back({{"name", check.name},
                             {"cases", check.cases},
                             // JSON has no infinity
                             {"largest_difference", std::min(check.largest, 1e300)},
                             {"same", check.same},
                             {"verdict", verdict(check)},
                             {"remark", check.remark}});
  }
  fmt::print("{}\n", to_text(out, 2));
}

void verify(const VerifyFlags& flags) {
  catch_interrupts();
  const auto model = flags.model.load();
  VerifyOptions options;
  options.threads = flags.model.threads;
  options.kv_dtype = dtype_from_name(flags.kv).value();
  options.drafter = flags.draft;
  if (flags.draft.empty() && flags.model.model.empty() && flags.model.program.empty())
    options.drafter = default_drafter_path();
  if (!flags.file.empty()) {
    const std::string text = read_file(flags.file);
    if (text.empty()) {
      throw Error(ErrorCode::invalid_argument,
                  {.where = flags.file, .expected = "a text to compute", .got = "an empty file", .advice = {}});
    }
    options.text = encode_prompt(model->tokenizer(), text);
  }
  std::string last;
  options.progress = [&last](std::string_view what, int64_t, int64_t) {
    if (what != last) say("verify: {}\n", what);
    last = what;
    return !interrupted();
  };
  const std::vector<VerifyCheck> checks = verify_model(model, options);
  const bool same = std::all_of(checks.begin(), checks.end(), [](const VerifyCheck& check) { return check.same; });
  if (flags.json) {
    print_json(*model, checks, same);
  } else {
    print_table(*model, checks);
  }
  std::fflush(stdout);
  if (same) return;
  throw Error(ErrorCode::internal, {.where = model->path().string(),
                                    .expected = "the same bits whichever way they are computed",
                                    .got = "differences, see the table",
                                    .advice = "please report this with the model's name and slipring --version"});
}

}  // namespace

void add_verify(CLI::App& app) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App* command =
      app.add_subcommand("verify", "Check on a model that every way of computing it gives the same bits");
  flags->model.add_with_program(*command);
  command->add_option("-d,--draft", flags->draft, "DFlash drafter of the model, to be checked with it")
      ->type_name("PATH");
  command->add_option("-f,--file", flags->file, "Text to compute; without it, ids without meaning")->type_name("FILE");
  add_kv(*command, flags->kv);
  command->add_flag("--json", flags->json, "Print JSON in place of the table");
  command->footer("Exit status 1 if anything differs. Example: slipring verify -m model.gguf");
  command->callback([flags] { verify(*flags); });
}

}  // namespace slipring::cli
