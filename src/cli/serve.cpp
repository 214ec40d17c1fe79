// slipring serve: the HTTP server.
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <memory>
#include <system_error>
#include <thread>

#include <slipring/error.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/say.h"
#include "server/http_server.h"

namespace slipring::cli {
namespace {

struct ServeFlags {
  ModelFlags model;
  SessionFlags session;
  server::HttpOptions http;
  std::string name;
  std::string key_file;
  std::string chat_template;
  std::string draft;
  bool no_draft = false;
  bool ngram = false;
  int64_t parallel = 8;
  int64_t queue = 64;
  int64_t prefix_cache = 512;
  int64_t drain_seconds = 20;
};

std::vector<std::string> read_keys(const std::string& path) {
  std::vector<std::string> keys;
  // A key in the environment or a file does not show in the list of processes.
  if (const char* key = std::getenv("SLIPRING_API_KEY"); key != nullptr && *key != '\0') keys.emplace_back(key);
  if (path.empty()) return keys;
  const std::string text = read_file(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) keys.push_back(std::move(line));
    at = end + 1;
  }
  if (keys.empty()) {
    throw Error(ErrorCode::invalid_argument, {.where = path, .expected = "one key a line", .got = "none"});
  }
  return keys;
}

/// As `run` has it: the embedded model brings its own drafter, other models get guesses where asked for.
void choose_drafts(const ServeFlags& flags, const std::shared_ptr<const Model>& model, SchedulerOptions& options) {
  if (flags.no_draft) return;
  if (flags.ngram) {
    options.make_drafts = [](const std::shared_ptr<Worker>&) { return make_ngram_drafts(); };
    return;
  }
  if (flags.draft.empty() && !flags.model.model.empty()) return;
  const std::filesystem::path path = flags.draft.empty() ? default_drafter_path() : std::filesystem::path(flags.draft);
  options.make_drafts = load_dflash_drafter(path, model, flags.model.threads);
}

/// Ends the waiter below. A signal that does nothing where it is not waited for.
constexpr int kWake = SIGURG;

/// Stops the server at the first SIGINT or SIGTERM, from a thread of its own; the second one then ends the process.
class SignalWaiter {
 public:
  /// Signals go to this one thread; every thread started from here on inherits that.
  static void block_signals() { change_mask(SIG_BLOCK, {SIGINT, SIGTERM, kWake}); }

  /// After block_signals().
  explicit SignalWaiter(server::HttpServer& http) {
    try {
      thread_ = std::thread([this, &http] { wait(http); });
    } catch (const std::system_error& error) {
      throw Error(ErrorCode::out_of_memory, {.where = "serve",
                                             .expected = "a thread that waits for signals",
                                             .got = error.what(),
                                             .advice = "raise the limits of memory and processes"});
    }
  }
  ~SignalWaiter() {
    over_ = true;
    pthread_kill(thread_.native_handle(), kWake);
    thread_.join();
  }
  SignalWaiter(const SignalWaiter&) = delete;
  SignalWaiter& operator=(const SignalWaiter&) = delete;

 private:
  static sigset_t change_mask(int how, std::initializer_list<int> signals) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : signals) sigaddset(&set, signal);
    pthread_sigmask(how, &set, nullptr);
    return set;
  }

  void wait(server::HttpServer& http) noexcept {
    const sigset_t awaited = change_mask(SIG_BLOCK, {SIGINT, SIGTERM, kWake});
    int signal = kWake;
    while (signal == kWake && !over_) sigwait(&awaited, &signal);
    if (signal == kWake) return;
    say("slipring: stopping; a second signal ends at once\n");
    change_mask(SIG_UNBLOCK, {SIGINT, SIGTERM});
    http.stop();
  }

  std::atomic<bool> over_{false};
  std::thread thread_;
};

void serve(ServeFlags& flags) {
  SignalWaiter::block_signals();
  flags.http.access.api_keys = read_keys(flags.key_file);
  flags.http.drain = std::chrono::seconds(flags.drain_seconds);
  flags.http.threads = static_cast<int>(flags.parallel + flags.queue) + 32;
  if (flags.http.host != "0.0.0.0" && flags.http.host != "::")
    flags.http.access.allowed_hosts.push_back(flags.http.host);

  const auto model = flags.model.load(flags.session.wanted_context());
  for (const std::string& notice : model->spec().notices) say("slipring: note: {}\n", notice);
  std::string name = flags.name.empty() ? model->path().stem().string() : flags.name;
  if (name.empty()) name = model->path().parent_path().filename().string();
  SchedulerOptions options;
  options.session = flags.session.options(model->spec(), flags.model.threads);
  options.max_running = flags.parallel;
  choose_drafts(flags, model, options);
  options.max_queued = flags.queue;
  options.prefixes.budget_bytes = flags.prefix_cache << 20;
  server::Service service(model, name, options, flags.chat_template.empty() ? "" : read_file(flags.chat_template));
  server::HttpServer http(service, flags.http);
  const int port = http.bind();

  const SignalWaiter waiter(http);
  const std::string shown =
      flags.http.host.find(':') == std::string::npos ? flags.http.host : "[" + flags.http.host + "]";
  say("slipring: serving {} on http://{}:{}/\n", name, shown, port);
  if (flags.http.access.api_keys.empty() && flags.http.host != "127.0.0.1" && flags.http.host != "localhost" &&
      flags.http.host != "::1") {
    say("slipring: note: other machines can use this server, and no key is asked for (--api-key-file)\n");
  }
  http.run();
}

}  // namespace

void add_serve(CLI::App& app) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command =
      app.add_subcommand("serve", "Serve the model over HTTP: OpenAI's API, and a page that shows the rings");
  flags->model.add(*command);
  flags->session.add(*command, ContextDefault::capped);
  command->add_option("--host", flags->http.host, "Address to listen on")->capture_default_str();
  command->add_option("--port", flags->http.port, "Port; 0: any that is free")
      ->capture_default_str()
      ->check(whole_number(0, 65535));
  command->add_option("--name", flags->name, "What /v1/models calls the model; default: its file's name");
  command->add_option("--chat-template", flags->chat_template, "Jinja template in place of the model's own")
      ->type_name("FILE");
  auto* draft =
      command->add_option("-d,--draft", flags->draft, "DFlash drafter of the model: faster, never another token")
          ->type_name("PATH");
  auto* ngram = command->add_flag("--ngram", flags->ngram, "Guess by looking up what followed the last tokens before")
                    ->excludes(draft);
  command->add_flag("--no-draft", flags->no_draft, "No guesses, not even by the embedded model's own drafter")
      ->excludes(draft)
      ->excludes(ngram);
  command->add_option("--parallel", flags->parallel, "Requests that run at once")
      ->capture_default_str()
      ->check(whole_number(1, 256));
  command->add_option("--queue", flags->queue, "Requests that wait beyond those; more get 503")
      ->capture_default_str()
      ->check(whole_number(0, 10000));
  command
      ->add_option("--prefix-cache", flags->prefix_cache,
                   "MiB for texts computed before, which prompts that begin the same way start from; 0: none")
      ->capture_default_str()
      ->check(whole_number(0, int64_t{1} << 20));
  command->add_option("--api-key-file", flags->key_file, "File of accepted keys, one a line; also $SLIPRING_API_KEY");
  command->add_option("--allow-host", flags->http.access.allowed_hosts,
                      "Host name to answer to, beside localhost and IP addresses");
  command->add_option("--cors", flags->http.access.cors_origins,
                      "Origin of pages that may call, as https://example.org; * for all");
  command->add_option("--max-body", flags->http.max_body_bytes, "Largest request body, bytes")
      ->capture_default_str()
      ->check(whole_number(1024, int64_t{1} << 30));
  command->add_option("--drain", flags->drain_seconds, "Seconds for replies to end after SIGTERM")
      ->capture_default_str()
      ->check(whole_number(0, 3600));
  command->footer("Example: slipring serve -m model.gguf --port 8080, then open http://127.0.0.1:8080/");
  command->callback([flags] { serve(*flags); });
}

}  // namespace slipring::cli
