// The slipring command: parses, dispatches, and turns every failure into one line and an exit status.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fmt/format.h>
#include <new>
#include <numeric>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <slipring/error.h>

#include "cli/commands.h"
#include "cli/say.h"
#include "formats/bus_error.h"

namespace {

constexpr std::string_view kNoOutput = "standard output: cannot be written";

int fail(std::string_view message, int status) noexcept {
  slipring::cli::say("slipring: {}\n", message);
  return status;
}

/// Letters to add, drop or change to make one word of the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + static_cast<size_t>(a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

/// What to say of a command line that was refused. A first word that is no command is the likeliest reason.
std::string refusal(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  const bool known = std::any_of(commands.begin(), commands.end(),
                                 [&word](const CLI::App* command) { return command->get_name() == word; });
  if (known || word.empty() || word.front() == '-') return fmt::format("{}; see slipring --help", error.what());
  std::string near;
  size_t nearest = std::min<size_t>(3, word.size());  // a guess that differs more helps nobody
  for (const CLI::App* command : commands) {
    const size_t differ = distance(word, command->get_name());
    if (differ >= nearest) continue;
    nearest = differ;
    near = fmt::format("; did you mean {}?", command->get_name());
  }
  return fmt::format("unknown command \"{}\"{}{}", word.substr(0, 40), near,
                     near.empty() ? "; see slipring --help" : "");
}

}  // namespace

int main(int argc, char** argv) {
  slipring::cli::hold_standard_streams();
  slipring::end_clearly_on_bus_error();
  slipring::leave_nothing_on_termination();
  CLI::App app{"slipring runs sliding-window language models: right for every query length, on the CPU."};
  app.name("slipring");
  app.set_version_flag("--version", SLIPRING_VERSION);
  app.require_subcommand(1);
  app.footer(
      "slipring COMMAND --help explains a command. Without -m every command uses the embedded model glimmer-tiny.\n"
      "Exit status: 0 done; 1 failed while running; 2 something to change in the command or its files; 130 Ctrl-C.");
  try {
    slipring::cli::add_quantize(app);
    slipring::cli::add_run(app);
    slipring::cli::add_serve(app);
    slipring::cli::add_inspect(app);
    slipring::cli::add_tokenize(app);
    slipring::cli::add_perplexity(app);
    slipring::cli::add_logits(app);
    slipring::cli::add_bench(app);
    slipring::cli::add_export(app);
    slipring::cli::add_verify(app);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return fail(refusal(app, error, argc, argv), 2);
    app.exit(error);  // prints what --help and --version ask for
  } catch (const slipring::Error& error) {
    return fail(error.what(), slipring::exit_status(error.code()));
  } catch (const std::bad_alloc&) {
    return fail("out of memory; use a smaller context, chunk or model", 1);
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) != 0) return fail(kNoOutput, 1);
    if (error.code() != std::errc::resource_unavailable_try_again) return fail(error.what(), 1);
    return fail("the system starts no more threads; use fewer, or raise the limits of memory and processes", 1);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
  // What was printed may still be in the buffer: a full disk behind a redirection is a failure too.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return fail(kNoOutput, 1);
  return 0;
}
