// The slipring command: parses, dispatches, and turns every failure into one line and an exit status.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fmt/format.h>
#include <new>

#include <slipring/error.h>

#include "cli/commands.h"
#include "formats/bus_error.h"

namespace {

int fail(std::string_view message, int status) {
  fmt::print(stderr, "slipring: {}\n", message);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  slipring::end_clearly_on_bus_error();
  slipring::leave_nothing_on_termination();
  CLI::App app{"slipring runs sliding-window language models: right for every query length, on the CPU."};
  app.name("slipring");
  app.set_version_flag("--version", SLIPRING_VERSION);
  app.require_subcommand(1);
  app.footer(
      "slipring COMMAND --help explains a command. Without -m every command uses the embedded model glimmer-tiny.");
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
    if (error.get_exit_code() != 0) return fail(fmt::format("{}; see slipring --help", error.what()), 2);
    app.exit(error);  // prints what --help and --version ask for
  } catch (const slipring::Error& error) {
    return fail(error.what(), slipring::exit_status(error.code()));
  } catch (const std::bad_alloc&) {
    return fail("out of memory; use a smaller context, chunk or model", 1);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
  // What was printed may still be in the buffer: a full disk behind a redirection is a failure too.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return fail("standard output: cannot be written", 1);
  return 0;
}
