// The subcommands: each adds itself to the command line; its callback runs it.
#pragma once

namespace CLI {
class App;
}

namespace slipring::cli {

void add_run(CLI::App& app);
void add_logits(CLI::App& app);

}  // namespace slipring::cli
