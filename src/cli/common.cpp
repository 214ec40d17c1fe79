#include "cli/common.h"

#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <unistd.h>

#include <slipring/error.h>

#include "cli/say.h"
#include "formats/output_file.h"

namespace slipring::cli {
namespace {

constexpr int64_t kMaxInputBytes = int64_t{1} << 30;
std::atomic<bool> g_interrupted{false};

void on_interrupt(int) {
  if (g_interrupted.exchange(true)) _exit(130);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void ModelFlags::add(CLI::App& command) {
  command.add_option("-m,--model", model, "GGUF file or Hugging Face folder; without it, the embedded glimmer-tiny")
      ->type_name("PATH");
  command.add_option("-t,--threads", threads, "Threads; 0: all cores. Never changes the result")
      ->type_name("N")
      ->check(whole_number(0, 256));
}

void ModelFlags::add_with_program(CLI::App& command) {
  add(command);
  command.add_option("--program", program, "Run an exported bundle's programs in place of a model")
      ->type_name("DIR")
      ->excludes("--model");
}

std::shared_ptr<const Model> ModelFlags::load(int64_t context) const {
  if (!program.empty()) return Model::load_bundle(program, {.threads = threads});
  return Model::load(model, {.threads = threads, .context = context});
}

CLI::Validator whole_number(int64_t least, int64_t most) {
  return {[least, most](const std::string& text) {
            int64_t number = 0;
            const char* end = text.data() + text.size();
            const auto [stop, problem] = std::from_chars(text.data(), end, number);
            if (problem == std::errc{} && stop == end && number >= least && number <= most) return std::string{};
            return fmt::format("got {}, expected a whole number from {} to {}", text, least, most);
          },
          fmt::format("{} to {}", least, most)};
}

CLI::Option* add_kv(CLI::App& command, std::string& kv, const std::string& what) {
  return command.add_option("--kv", kv, "Element type of " + what + ": f32, f16 or bf16")
      ->type_name("TYPE")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
}

void SessionFlags::add(CLI::App& command, ContextDefault by_default) {
  by_default_ = by_default;
  const std::string without = by_default == ContextDefault::capped
                                  ? fmt::format("that limit, but at most {} tokens", kDefaultContext)
                                  : std::string("that limit too");
  command
      .add_option("-c,--ctx", context,
                  "Most tokens of prompt and answer; 0: the model's own limit; not given: " + without)
      ->type_name("N")
      ->check(whole_number(0, int64_t{1} << 40));
  command
      .add_option("--chunk", chunk, "Tokens a prefill step computes at once: memory against speed, never the result")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(1, int64_t{1} << 20));
  add_kv(command, kv);
}

SessionOptions SessionFlags::options(const ModelSpec& spec, int threads) const {
  int64_t tokens = context > 0 ? context : spec.context_length;
  if (context == kNotGiven && by_default_ == ContextDefault::capped) tokens = std::min(tokens, kDefaultContext);
  return {.kv_dtype = dtype_from_name(kv).value(), .context = tokens, .chunk = chunk, .threads = threads};
}

void SamplingFlags::add(CLI::App& command) {
  command.add_option("--temp", options.temperature, "Temperature; 0: always the likeliest token")
      ->type_name("X")
      ->capture_default_str();
  command.add_option("--top-k", options.top_k, "Draw from the K likeliest tokens; 0: all")
      ->type_name("K")
      ->capture_default_str();
  command
      .add_option("--top-p", options.top_p, "Draw from the likeliest tokens that together have probability P; 1: all")
      ->type_name("P")
      ->capture_default_str();
  command.add_option("--min-p", options.min_p, "Draw from tokens at least P times as likely as the likeliest; 0: all")
      ->type_name("P")
      ->capture_default_str();
  command.add_option("--repeat-penalty", options.repeat_penalty, "Penalty on the last 64 tokens; 1: none")
      ->type_name("X")
      ->capture_default_str();
  command
      .add_option("-s,--seed", seed, "Seed of the draws; the same seed gives the same text. -1: a new one each time")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(-1, INT64_MAX));
}

SamplingOptions SamplingFlags::resolved() const {
  SamplingOptions result = options;
  result.seed = seed >= 0 ? static_cast<uint64_t>(seed) : std::random_device{}();
  return result;
}

std::string read_file(const std::filesystem::path& path) {
  const auto slurp = [&path](std::istream& in) {
    std::string text;
    char block[1 << 16];
    while (in.read(block, sizeof(block)) || in.gcount() > 0) {
      text.append(block, static_cast<size_t>(in.gcount()));
      if (static_cast<int64_t>(text.size()) > kMaxInputBytes) {
        throw Error(ErrorCode::invalid_argument,
                    {.where = path.string(), .expected = "at most 1 GiB of text", .got = "more", .advice = {}});
      }
    }
    if (in.bad()) {
      throw Error(ErrorCode::io, {.where = path.string(), .expected = {}, .got = "read error", .advice = {}});
    }
    return text;
  };
  if (path == "-") return slurp(std::cin);
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  const bool folder = std::filesystem::is_directory(path, ignored);
  if (!file || folder) {
    throw Error(ErrorCode::not_found, {.where = path.string(),
                                       .expected = "a file that can be read",
                                       .got = folder ? "a folder" : "none",
                                       .advice = {}});
  }
  return slurp(file);
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

void check_output(const std::filesystem::path& path, std::initializer_list<std::string_view> sources) {
  if (path.empty()) return;
  for (const std::string_view source : sources) {
    if (!source.empty()) refuse_to_replace(path, source);
  }
  const OutputFile probe(path);  // never committed: it leaves nothing
}

std::string to_text(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<TokenId> parse_token_ids(std::string_view text, const std::string& where) {
  std::vector<TokenId> ids;
  constexpr std::string_view kSeparators = " ,\t\r\n";
  size_t at = 0;
  while ((at = text.find_first_not_of(kSeparators, at)) != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    TokenId id = 0;
    const auto [stop, problem] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (problem != std::errc{} || stop != word.data() + word.size()) {
      throw Error(ErrorCode::invalid_argument, {.where = where,
                                                .expected = "token ids: whole numbers",
                                                .got = "\"" + std::string(word.substr(0, 40)) + "\"",
                                                .advice = {}});
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

std::string human_bytes(int64_t bytes) {
  const auto x = static_cast<double>(bytes);
  if (x < 1e3) return fmt::format("{} B", bytes);
  if (x < 1e6) return fmt::format("{:.1f} KB", x / 1e3);
  if (x < 1e9) return fmt::format("{:.1f} MB", x / 1e6);
  return fmt::format("{:.2f} GB", x / 1e9);
}

ProgressLine::ProgressLine(std::string what) : what_(std::move(what)), started_(now()), terminal_(isatty(2) != 0) {}
ProgressLine::~ProgressLine() {
  clear();
}

void ProgressLine::show(int64_t done, int64_t total) {
  const double time = now();
  if (!terminal_ || time - started_ < 1.0 || (time - shown_ < 0.1 && done < total)) return;
  shown_ = time;
  visible_ = true;
  const double rate = static_cast<double>(done) / (time - started_);
  const double left = rate > 0 ? static_cast<double>(total - done) / rate : 0;
  say("\r\x1b[2K{}: {} of {} tokens ({:.0f} %), {:.0f} tokens/s, {:.0f} s left", what_, done, total,
      100.0 * static_cast<double>(done) / static_cast<double>(total), rate, left);
}

void ProgressLine::clear() {
  if (!visible_) return;
  say("\r\x1b[2K");
  visible_ = false;
}

bool interrupted() noexcept {
  return g_interrupted.load();
}

void stop_if_interrupted(const char* command) {
  if (!interrupted()) return;
  throw Error(ErrorCode::cancelled, {.where = command, .expected = {}, .got = "stopped on request", .advice = {}});
}

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace slipring::cli
