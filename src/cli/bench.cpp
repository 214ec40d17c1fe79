// slipring bench: prefill and decode speed at several depths of context.
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include <slipring/error.h>
#include <slipring/sampling.h>
#include <slipring/session.h>
#include <slipring/snapshot.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "engine/worker.h"
#include "kernels/roofline.h"
#include "models/decoder.h"

namespace slipring::cli {
namespace {

struct BenchFlags {
  ModelFlags model;
  std::string kv = "f16";
  int64_t chunk = 512;
  int64_t prompt = 512;
  int64_t generate = 64;
  std::vector<int64_t> depths = {0};
  int repetitions = 5;
  bool json = false;
};

struct Spread {
  double median = 0.0;
  double least = 0.0;
  double most = 0.0;
};

Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

struct DepthResult {
  int64_t depth = 0;
  Spread prefill;  // tokens a second
  Spread decode;
  Spread bandwidth;  // bytes a second that this machine read from memory, measured before and after each decode
  double bandwidth_share = 0.0;
  int64_t kv_bytes = 0;
};

// Random tokens: speed does not depend on them, and no text is favoured.
std::vector<TokenId> random_tokens(int64_t count, int64_t vocab, uint64_t seed) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<TokenId>(uniform_draw(seed, i) * static_cast<double>(vocab));
  }
  return tokens;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Bytes that one decoded token must read: every weight but the embedding table's other rows, and the keys and values in
// sight.
double bytes_a_token(const Model& model, int64_t kv_bytes) {
  const Linear& table = model.decoder().embedding_table();
  const int64_t lookup = model.decoder().ties_embeddings() ? 0 : table.matrix.bytes();
  return static_cast<double>(model.weight_bytes() - lookup + kv_bytes);
}

DepthResult measure(Session& session, ReadProbe& probe, const BenchFlags& flags, int64_t depth) {
  const int64_t vocab = session.model().spec().vocab_size;
  const auto past = random_tokens(depth, vocab, 1);
  const auto start = random_tokens(1, vocab, 4);
  const auto prompt = random_tokens(flags.prompt, vocab, 2);
  const auto next = random_tokens(flags.generate, vocab, 3);
  DepthResult result;
  result.depth = depth;
  std::vector<double> prefill;
  std::vector<double> decode;
  std::vector<double> bandwidth;
  std::vector<double> shares;
  ProgressLine progress(fmt::format("depth {}", depth));
  session.clear();
  // At depth 0 decoding still needs a token to stand on.
  session.prefill(depth > 0 ? std::span(past) : std::span(start), [&](int64_t done, int64_t total) {
    progress.show(done, total);
    return !interrupted();
  });
  const auto at_depth = Snapshot::take(session);
  // One round more than counted: the first warms caches and buffers up.
  for (int round = 0; round <= flags.repetitions; ++round) {
    for (const bool decoding : {false, true}) {
      if (depth > 0 || decoding) {
        at_depth->restore(session);
      } else {
        session.clear();
      }
      // On a shared machine the bandwidth changes from second to second: it is measured around what is compared with
      // it.
      ThreadPool& pool = session.worker()->pool;
      const auto read_now = [&] { return std::max(probe.bytes_per_s(pool), probe.bytes_per_s(pool)); };
      const double before = decoding ? read_now() : 0.0;
      const double seconds = seconds_of([&] {
        if (!decoding) {
          if (flags.prompt > 0) session.prefill(prompt, [](int64_t, int64_t) { return !interrupted(); });
          return;
        }
        for (const TokenId token : next) {
          stop_if_interrupted("bench");
          session.decode(token);
        }
      });
      const double after = decoding ? read_now() : 0.0;
      if (round == 0) continue;
      const int64_t tokens = decoding ? flags.generate : flags.prompt;
      if (tokens > 0) (decoding ? decode : prefill).push_back(static_cast<double>(tokens) / seconds);
      if (!decoding || tokens == 0) continue;
      bandwidth.push_back((before + after) / 2);
      shares.push_back(decode.back() * bytes_a_token(session.model(), session.kv_bytes_held()) / bandwidth.back());
    }
  }
  if (!prefill.empty()) result.prefill = spread(std::move(prefill));
  if (!decode.empty()) {
    result.decode = spread(std::move(decode));
    result.bandwidth = spread(std::move(bandwidth));
    result.bandwidth_share = spread(std::move(shares)).median;
  }
  result.kv_bytes = session.kv_bytes_held();
  return result;
}

nlohmann::json as_json(const Spread& s) {
  return {{"median", s.median}, {"min", s.least}, {"max", s.most}};
}

void bench(const BenchFlags& flags) {
  catch_interrupts();
  const int64_t longest = *std::max_element(flags.depths.begin(), flags.depths.end());
  const int64_t need = longest + std::max(flags.prompt, flags.generate + 1);
  const auto model = flags.model.load(need);
  if (need > model->spec().context_length) {
    throw Error(ErrorCode::context_full,
                {.where = "--depth",
                 .expected = fmt::format("at most {} tokens in all", model->spec().context_length),
                 .got = fmt::format("{} with prompt and answer", need),
                 .advice = {}});
  }
  Session session(model, {.kv_dtype = dtype_from_name(flags.kv).value(),
                          .context = 0,
                          .chunk = flags.chunk,
                          .threads = flags.model.threads});
  ReadProbe probe;
  nlohmann::json all = nlohmann::json::array();
  if (!flags.json) {
    fmt::print("{}, {} threads, keys and values {}, {} repetitions\n", model->path().string(),
               session.worker()->pool.threads(), flags.kv, flags.repetitions);
    fmt::print("{:>8}  {:>30}  {:>30}  {:>17}  {:>10}\n", "depth",
               fmt::format("prefill {} tok/s (min-max)", flags.prompt),
               fmt::format("decode {} tok/s (min-max)", flags.generate), "read GB/s (share)", "KV memory");
  }
  for (const int64_t depth : flags.depths) {
    const DepthResult r = measure(session, probe, flags, depth);
    if (flags.json) {
      all.push_back({{"depth", depth},
                     {"prefill_tok_s", r.prefill.median},
                     {"decode_tok_s", r.decode.median},
                     {"prefill_spread", as_json(r.prefill)},
                     {"decode_spread", as_json(r.decode)},
                     {"bandwidth_share", r.bandwidth_share},
                     {"read_bandwidth", r.bandwidth.median},
                     {"kv_bytes", r.kv_bytes},
                     {"threads", session.worker()->pool.threads()}});
      continue;
    }
    const auto text = [](const Spread& s) { return fmt::format("{:.1f} ({:.1f}-{:.1f})", s.median, s.least, s.most); };
    fmt::print("{:>8}  {:>30}  {:>30}  {:>17}  {:>10}\n", depth, text(r.prefill), text(r.decode),
               fmt::format("{:.1f} ({:.0f} %)", r.bandwidth.median / 1e9, 100 * r.bandwidth_share),
               human_bytes(r.kv_bytes));
  }
  if (flags.json) fmt::print("{}\n", to_text(all));
}

}  // namespace

void add_bench(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = app.add_subcommand("bench", "Prefill and decode speed at several depths of context");
  flags->model.add(*command);
  command->add_option("-p,--prompt-tokens", flags->prompt, "Tokens of the timed prefill")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(0, int64_t{1} << 30));
  command->add_option("-n,--decode-tokens", flags->generate, "Tokens of the timed decode")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(0, int64_t{1} << 30));
  command->add_option("-d,--depth", flags->depths, "Tokens in the context before; may be given several times")
      ->type_name("N")
      ->check(whole_number(0, int64_t{1} << 30));
  command->add_option("-r,--repetitions", flags->repetitions, "Timed rounds; the median is shown")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(1, 1000));
  command->add_option("--chunk", flags->chunk, "Tokens a prefill step computes at once")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(1, int64_t{1} << 20));
  add_kv(*command, flags->kv);
  command->add_flag("--json", flags->json, "A JSON array with one object a depth");
  command->callback([flags] { bench(*flags); });
}

}  // namespace slipring::cli
