// The subcommands: each adds itself to the command line; its callback runs it.
#pragma once

namespace CLI {
class App;
}

namespace slipring::cli {

void add_bench(CLI::App& app);
void add_export(CLI::App& app);
void add_inspect(CLI::App& app);
void add_logits(CLI::App& app);
void add_perplexity(CLI::App& app);
void add_run(CLI::App& app);
void add_serve(CLI::App& app);
void add_tokenize(CLI::App& app);

void add_quantize(CLI::App& app);
void add_verify(CLI::App& app);

}  // namespace slipring::cli
