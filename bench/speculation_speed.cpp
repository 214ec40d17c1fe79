// How much speculation gains at a given acceptance: a real drafter runs and is paid for, but its guesses are replaced
// by the true continuation, made wrong often enough. Plain and speculative runs alternate; medians are printed.
//
//   speculation_speed MODEL DRAFTER|none [ACCEPTANCE_PER_PLACE=0.83] [TOKENS=128] [ROUNDS=5] [THREADS=2]
//
// 0.83 a place accepts 64 % of 4 guesses, what is published for Muse Glimmer 30B.
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <slipring/drafts.h>
#include <slipring/error.h>
#include <slipring/generate.h>

namespace slipring {
namespace {

/// The true continuation with mistakes; the drafter behind it works as usual and is not listened to.
class Replay final : public Drafts {
 public:
  Replay(std::unique_ptr<Drafts> paid, const std::vector<TokenId>& truth, double acceptance)
      : paid_(std::move(paid)), truth_(truth), acceptance_(acceptance) {}

  std::string_view name() const noexcept override { return "replay"; }
  std::span<const int> taps() const noexcept override { return paid_ ? paid_->taps() : std::span<const int>{}; }
  int64_t max_drafts() const noexcept override { return paid_ ? paid_->max_drafts() : 7; }
  void observe(std::span<const TokenId> tokens, std::span<const std::span<const float>> hidden) override {
    if (paid_) paid_->observe(tokens, hidden);
  }
  void settle() override {
    if (paid_) paid_->settle();
  }
  std::vector<TokenId> propose(std::span<const TokenId> history, int64_t count) override {
    std::vector<TokenId> guesses;
    if (paid_) guesses = paid_->propose(history, count);
    guesses.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < guesses.size(); ++i) {
      const size_t at = history.size() + i;
      const TokenId right = at < truth_.size() ? truth_[at] : 0;
      guesses[i] = uniform_draw(11, draws_++) < acceptance_ ? right : right + 1;
    }
    return guesses;
  }
  void clear() override {
    if (paid_) paid_->clear();
  }
  bool truncate(int64_t) override { return false; }

 private:
  std::unique_ptr<Drafts> paid_;
  const std::vector<TokenId>& truth_;
  double acceptance_;
  uint64_t draws_ = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: speculation_speed MODEL DRAFTER|none [ACCEPTANCE] [TOKENS] [ROUNDS] [THREADS]\n");
    return 2;
  }
  const std::string drafter = argv[2];
  const double acceptance = argc > 3 ? std::stod(argv[3]) : 0.83;
  const int64_t tokens = argc > 4 ? std::stoll(argv[4]) : 128;
  const int rounds = argc > 5 ? std::stoi(argv[5]) : 5;
  const int threads = argc > 6 ? std::stoi(argv[6]) : 2;
  const auto model = Model::load(argv[1], {.threads = threads});
  std::vector<TokenId> prompt;
  for (uint64_t i = 0; i < 64; ++i) {
    prompt.push_back(static_cast<TokenId>(uniform_draw(4, i) * static_cast<double>(model->spec().vocab_size)));
  }
  GenerateOptions options;
  options.max_tokens = tokens;
  options.ignore_end = true;
  options.sampling.temperature = 0;

  std::vector<TokenId> truth;
  SpeculationStats stats;
  const auto once = [&](double accepted_share, int64_t block, bool drafts) {
    Session session(model, {.kv_dtype = DType::F16, .context = 4096, .chunk = 512, .threads = threads});
    if (drafts) {
      auto paid = drafter == "none" ? nullptr : load_dflash_drafts(drafter, model, session.worker());
      session.attach_drafts(std::make_unique<Replay>(std::move(paid), truth, accepted_share));
    }
    options.speculation.block = block;
    const GenerateResult result = generate(session, prompt, options);
    std::vector<TokenId> all = prompt;
    all.insert(all.end(), result.tokens.begin(), result.tokens.end());
    if (truth.empty()) truth = all;
    if (all != truth)
      throw Error(ErrorCode::internal,
                  {.where = "speculation_speed", .expected = "the same text", .got = "another", .advice = {}});
    stats = result.speculation;
    return static_cast<double>(tokens - 1) / result.decode_seconds;
  };
  once(0, 0, false);
  struct Case {
    std::string name;
    double acceptance;
    int64_t block;
  };
  std::vector<Case> cases = {{fmt::format("4 guesses, {} a place", acceptance), acceptance, 5},
                             {fmt::format("automatic, {} a place", acceptance), acceptance, 0}};
  for (const double share : {0.65, 0.5, 0.35, 0.2, 0.0}) {
    cases.push_back({fmt::format("automatic, {} a place", share), share, 0});
  }
  fmt::print(
      "| drafts | tokens/s | plain | ratio | accepted | tokens a step |\n| --- | ---: | ---: | ---: | ---: | ---: |\n");
  for (const Case& c : cases) {
    std::vector<double> plain;
    std::vector<double> speculative;
    for (int round = 0; round < rounds; ++round) {
      plain.push_back(once(0, 0, false));
      speculative.push_back(once(c.acceptance, c.block, true));
    }
    fmt::print(
        "| {} | {:.1f} | {:.1f} | {:.2f} | {:.0f} % | {:.2f} |\n", c.name, median(speculative), median(plain),
        median(speculative) / median(plain),
        stats.proposed > 0 ? 100.0 * static_cast<double>(stats.accepted) / static_cast<double>(stats.proposed) : 0.0,
        static_cast<double>(stats.steps + stats.accepted) / static_cast<double>(stats.steps));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace slipring

int main(int argc, char** argv) {
  try {
    return slipring::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "speculation_speed: {}\n", error.what());
    return 1;
  }
}
