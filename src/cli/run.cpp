// slipring run: prompt in, streamed text out.
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <slipring/drafts.h>
#include <slipring/error.h>
#include <slipring/generate.h>
#include <slipring/snapshot.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/say.h"

namespace slipring::cli {
namespace {

struct RunFlags {
  ModelFlags model;
  SessionFlags session;
  SamplingFlags sampling;
  std::string prompt;
  std::string file;
  int64_t max_tokens = 256;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool special = false;
  bool quiet = false;
  std::string draft;
  bool no_draft = false;
  bool ngram = false;
  int64_t draft_block = 0;
  std::string load_session;
  std::string save_session;
  std::string stats;
};

std::string read_prompt(const RunFlags& flags, bool have_prompt) {
  if (!flags.file.empty()) return read_file(flags.file);
  if (have_prompt) return flags.prompt;
  if (!flags.load_session.empty()) return {};  // goes on where it stopped
  if (isatty(0) != 0) {
    throw Error(ErrorCode::invalid_argument, {.where = "prompt",
                                              .expected = "-p TEXT, -f FILE, or text on standard input",
                                              .got = "none",
                                              .advice = "try: slipring run -p \"In the beginning\""});
  }
  return read_file("-");
}

/// The embedded model brings its own drafter; other models and bundles get guesses where asked for.
void attach_drafts(Session& session, const RunFlags& flags) {
  if (flags.no_draft) return;
  if (flags.ngram) {
    session.attach_drafts(make_ngram_drafts());
  } else if (!flags.draft.empty()) {
    session.attach_drafts(load_dflash_drafts(flags.draft, session.shared_model(), session.worker()));
  } else if (flags.model.model.empty() && flags.model.program.empty()) {
    session.attach_drafts(load_dflash_drafts(default_drafter_path(), session.shared_model(), session.worker()));
  }
}

double rate(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

/// A short text gains nothing from rings, which are allocated whole; then the line says that longer ones do.
std::string memory_line(const Session& session) {
  const ModelSpec& spec = session.model().spec();
  const int64_t held = session.kv_bytes_held();
  const int64_t without = kv_bytes_without_rings(spec, session.length(), session.options().kv_dtype);
  const int64_t window = largest_window(spec);
  std::string line = fmt::format("KV memory {} at {} tokens; ", human_bytes(held), session.length());
  if (window == 0) return line + "this model has no sliding layers";
  line += fmt::format("without rings {}", human_bytes(without));
  if (without > held) return line;
  return line + fmt::format(" so far: rings of {} tokens never grow, so longer texts gain", window);
}

void print_summary(const Session& session, const GenerateResult& result, uint64_t seed) {
  // The first token comes out of the prefill: a rate needs one more.
  const auto decoded = static_cast<int64_t>(result.tokens.size()) - 1;
  const std::string speed =
      decoded > 0 ? fmt::format(", {:.1f} tokens/s", rate(decoded, result.decode_seconds)) : std::string();
  say("prefill {} tokens, {:.1f} tokens/s; decode {} tokens{}; ended by {}; seed {}\n", result.prompt_tokens,
      rate(result.prompt_tokens, result.prefill_seconds), result.tokens.size(), speed, to_string(result.finish), seed);
  const SpeculationStats& stats = result.speculation;
  if (stats.proposed > 0) {
    say("drafts: {} of {} accepted, {:.2f} tokens a step\n", stats.accepted, stats.proposed,
        static_cast<double>(stats.steps + stats.accepted) / static_cast<double>(stats.steps));
  }
  say("{}\n", memory_line(session));
}

/// What generate() is to be given: the prompt, after what a saved session has seen already.
std::vector<TokenId> read_tokens(Session& session, const RunFlags& flags, const std::string& text) {
  const Tokenizer& tokenizer = session.model().tokenizer();
  const auto control = flags.special ? ControlTokens::parse : ControlTokens::as_text;
  if (session.length() == 0) return encode_prompt(tokenizer, text, control);
  std::vector<TokenId> tokens = tokenizer.encode(text, control);
  if (tokens.empty()) {
    // The last token is computed once more: its logits give the next one.
    tokens.push_back(session.tokens().back());
    session.truncate(session.length() - 1);
  }
  return tokens;
}

/// The whole text is in the file: the last token drawn too, which generate() leaves out.
void save_session(Session& session, const RunFlags& flags, const GenerateResult& result, uint64_t seed) {
  if (!result.tokens.empty() && session.length() < session.context() && result.finish != FinishReason::end_of_turn) {
    session.decode(result.tokens.back());
  }
  Snapshot::take(session, {.seed = seed, .draws = result.draws})->save(flags.save_session);
}

void write_stats(const RunFlags& flags, const Session& session, const GenerateResult& result, uint64_t seed) {
  const SpeculationStats& stats = result.speculation;
  const nlohmann::json json{{"prompt_tokens", result.prompt_tokens},
                            {"prefill_seconds", result.prefill_seconds},
                            {"tokens", result.tokens},
                            {"decode_seconds", result.decode_seconds},
                            {"finish", to_string(result.finish)},
                            {"seed", seed},
                            {"length", session.length()},
                            {"kv_bytes", session.kv_bytes_held()},
                            {"drafts", session.drafts() != nullptr ? session.drafts()->name() : "none"},
                            {"steps", stats.steps},
                            {"proposed", stats.proposed},
                            {"accepted", stats.accepted},
                            {"proposed_at", stats.proposed_at},
                            {"accepted_at", stats.accepted_at},
                            {"propose_seconds", stats.propose_seconds}};
  write_file(flags.stats, to_text(json) + "\n");
}

void run(const RunFlags& flags, bool have_prompt) {
  catch_interrupts();
  const std::string prompt_text = read_prompt(flags, have_prompt);
  for (const std::string& output : {flags.stats, flags.save_session}) {
    check_output(output, {flags.model.model, flags.model.program, flags.draft});
  }
  const auto model = flags.model.load(flags.session.wanted_context());
  for (const std::string& notice : model->spec().notices) say("slipring: note: {}\n", notice);
  Session session(model, flags.session.options(model->spec(), flags.model.threads));

  attach_drafts(session, flags);
  SamplerState sampler;
  if (!flags.load_session.empty()) {
    const auto saved = Snapshot::load(flags.load_session);
    saved->restore(session);
    sampler = saved->sampler();
    if (saved->drafts_state().empty() && session.drafts() != nullptr && !session.drafts()->taps().empty()) {
      say("slipring: note: the session was saved without this drafter; it goes on without guesses\n");
    }
  }

  GenerateOptions options;
  options.speculation.block = flags.draft_block;
  options.max_tokens = flags.max_tokens;
  options.stop = flags.stop;
  options.ignore_end = flags.ignore_eos;
  options.sampling = flags.sampling.resolved();
  if (!flags.load_session.empty() && flags.sampling.seed < 0) {
    options.sampling.seed = sampler.seed;
    options.first_draw = sampler.draws;
  }
  const std::vector<TokenId> prompt = read_tokens(session, flags, prompt_text);

  ProgressLine progress("reading the prompt");
  const auto on_prefill = [&progress](int64_t done, int64_t total) {
    progress.show(done, total);
    if (done == total) progress.clear();
    return !interrupted();
  };
  bool ends_with_newline = true;
  const auto on_text = [&ends_with_newline](std::string_view piece) {
    if (std::fwrite(piece.data(), 1, piece.size(), stdout) != piece.size() || std::fflush(stdout) != 0) {
      throw Error(ErrorCode::io,
                  {.where = "standard output", .expected = {}, .got = "cannot be written", .advice = {}});
    }
    ends_with_newline = piece.back() == '\n';
    return !interrupted();
  };
  const GenerateResult result = generate(session, prompt, options, on_text, on_prefill);
  if (!ends_with_newline) on_text("\n");
  if (!flags.stats.empty()) write_stats(flags, session, result, options.sampling.seed);
  if (!flags.save_session.empty()) save_session(session, flags, result, options.sampling.seed);
  if (!flags.quiet) print_summary(session, result, options.sampling.seed);
  if (result.finish == FinishReason::cancelled) stop_if_interrupted("run");
}

}  // namespace

void add_run(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "Generate text from a prompt; it streams to standard output");
  auto* prompt = command->add_option("-p,--prompt", flags->prompt, "The prompt")->type_name("TEXT");
  command->add_option("-f,--file", flags->file, "Read the prompt from a file; - is standard input")
      ->type_name("FILE")
      ->excludes(prompt);
  command
      ->add_option("-n,--predict", flags->max_tokens,
                   "Most tokens to generate; -1: until the model ends or the context is full")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(-1, int64_t{1} << 40));
  flags->model.add_with_program(*command);
  flags->session.add(*command);
  flags->sampling.add(*command);
  command->add_option("--stop", flags->stop, "End before this text appears; may be given several times")
      ->type_name("TEXT");
  auto* draft =
      command->add_option("-d,--draft", flags->draft, "DFlash drafter of the model: guesses that change the speed only")
          ->type_name("PATH");
  auto* ngram = command->add_flag("--ngram", flags->ngram, "Guess by looking up the text so far; works with any model")
                    ->excludes(draft);
  command->add_flag("--no-draft", flags->no_draft, "No guesses, not even with the embedded model")
      ->excludes(draft)
      ->excludes(ngram);
  command->add_option("--draft-block", flags->draft_block, "Tokens verified at once, from 2 on; 0: as many as pay off")
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--load-session", flags->load_session,
                   "Go on from a saved session; a prompt is appended, without one the text goes on. The seed and its "
                   "draws go on too, unless --seed is given")
      ->type_name("FILE");
  command
      ->add_option("--save-session", flags->save_session,
                   "Save the whole state at the end: text, keys and values, drafter and sampler")
      ->type_name("FILE");
  command->add_option("--stats-json", flags->stats, "Write counts, times and token ids as JSON")->type_name("FILE");
  command->add_flag("--ignore-eos", flags->ignore_eos, "Go on where the model would end");
  command->add_flag("--special", flags->special, "Control tokens spelled in the prompt become control tokens");
  command->add_flag("-q,--quiet", flags->quiet, "Nothing but the text");
  command->footer("Example: slipring run -m model.gguf -p \"In the beginning\" -n 64 --temp 0");
  command->callback([flags, prompt] { run(*flags, prompt->count() > 0); });
}

}  // namespace slipring::cli
