// Flags and small things that several subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <slipring/dtype.h>
#include <slipring/sampling.h>
#include <slipring/session.h>

namespace slipring::cli {

/// -m, --threads: every command that runs a model.
struct ModelFlags {
  std::string model;
  std::string program;
  int threads = 0;
  void add(CLI::App& command);
  /// add(), and --program for the commands that run bundles too.
  void add_with_program(CLI::App& command);
  /// @param context  what the command's --ctx asks for; 0: nothing
  std::shared_ptr<const Model> load(int64_t context = 0) const;
};

/// -c, --chunk, --kv.
struct SessionFlags {
  int64_t context = 0;
  int64_t chunk = 512;
  std::string kv = "f16";
  void add(CLI::App& command);
  SessionOptions options(int threads) const;
};

/// --temp, --top-k, --top-p, --min-p, --repeat-penalty, --seed.
struct SamplingFlags {
  SamplingOptions options;
  int64_t seed = -1;
  void add(CLI::App& command);
  /// With a seed drawn where none was given.
  SamplingOptions resolved() const;
};

/// The whole file; "-" is stdin. @throws Error{not_found, io, invalid_argument} beyond 1 GiB
std::string read_file(const std::filesystem::path& path);

/// Replaces the file whole. @throws Error{io, not_found}
void write_file(const std::filesystem::path& path, std::string_view text);

/// "1 2 3" or "1,2,3" to ids. @throws Error{invalid_argument} naming the word that is no id
std::vector<TokenId> parse_token_ids(std::string_view text, const std::string& where);

/// "39.1 MB", "812 KB": 1 MB = 10^6 bytes.
std::string human_bytes(int64_t bytes);

/// A line on stderr that is redrawn in place on a terminal, and stays silent elsewhere; shown from the second second
/// on.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what);
  ~ProgressLine();
  void show(int64_t done, int64_t total);
  void clear();

 private:
  std::string what_;
  double started_;
  double shown_ = 0.0;
  bool visible_ = false;
  bool terminal_;
};

/// Ctrl-C asks commands to stop; true once it was pressed. A second Ctrl-C ends the process at once.
bool interrupted() noexcept;
void catch_interrupts();

}  // namespace slipring::cli
