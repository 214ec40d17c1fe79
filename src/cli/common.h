// Flags and small things that several subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
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

/// A whole number from `least` to `most`, and nothing that only begins like one.
CLI::Validator whole_number(int64_t least, int64_t most);

/// --kv: the element type of `what`. @return the option
CLI::Option* add_kv(CLI::App& command, std::string& kv, const std::string& what = "keys and values");

/// What a command takes where no --ctx is given; --ctx 0 is the model's own limit in every one.
enum class ContextDefault : uint8_t {
  model,   ///< the model's own limit
  capped,  ///< the model's own limit, but at most kDefaultContext tokens
};

/// -c, --chunk, --kv.
struct SessionFlags {
  static constexpr int64_t kNotGiven = -1;
  int64_t context = kNotGiven;
  int64_t chunk = 512;
  std::string kv = "f16";
  void add(CLI::App& command, ContextDefault by_default = ContextDefault::model);
  /// What --ctx asks for; 0: nothing.
  int64_t wanted_context() const { return std::max<int64_t>(context, 0); }
  /// With the context that --ctx or the command's default gives this model.
  SessionOptions options(const ModelSpec& spec, int threads) const;

 private:
  ContextDefault by_default_ = ContextDefault::model;
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

/// Fails now where writing this file after the work would: no such folder, no right to; or where it would replace one
/// of the models that are read. Nothing for an empty path.
void check_output(const std::filesystem::path& path, std::initializer_list<std::string_view> sources);

/// One line of JSON, or indented. What is not UTF-8, as a path may be, becomes U+FFFD.
std::string to_text(const nlohmann::json& json, int indent = -1);

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
/// @throws Error{cancelled}, exit status 130, once Ctrl-C was pressed
void stop_if_interrupted(const char* command);

}  // namespace slipring::cli
