#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <unordered_map>

#include <slipring/error.h>
#include <slipring/sampling.h>

namespace slipring {
namespace {

constexpr double kGreedyBelow = 1e-6;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The greatest logit; -infinity bans a token, anything else that is not finite is a broken row.
float checked_maximum(std::span<const float> logits) {
  float maximum = kMinusInfinity;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float x = logits[i];
    if (std::isnan(x) || x == std::numeric_limits<float>::infinity()) {
      throw Error(ErrorCode::non_finite, {.where = fmt::format("logit of token {}", i),
                                          .expected = "a number",
                                          .got = std::isnan(x) ? "NaN" : "infinity",
                                          .advice = "the model file may be damaged: run slipring verify"});
    }
    maximum = std::max(maximum, x);
  }
  if (maximum == kMinusInfinity) {
    throw Error(ErrorCode::non_finite, {.where = "logits",
                                        .expected = "at least one token that is allowed",
                                        .got = "minus infinity for every token",
                                        .advice = "check the logit biases"});
  }
  return maximum;
}

double log_sum_exp(std::span<const float> logits, float maximum) {
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - maximum);
  return maximum + std::log(sum);
}

struct Candidate {
  TokenId id;
  float logit;
  double probability;
};

// Most likely first; the lowest id among equals, so the order never depends on the sort.
bool more_likely(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

std::vector<float> with_bias_and_penalties(std::span<const float> logits, std::span<const TokenId> history,
                                           const SamplingOptions& options) {
  std::vector<float> adjusted(logits.begin(), logits.end());
  for (const auto& [id, bias] : options.logit_bias) adjusted[static_cast<size_t>(id)] += bias;
  if (options.repeat_penalty != 1.0 && options.penalty_window != 0) {
    auto recent = history;
    const auto window = static_cast<size_t>(std::max<int64_t>(options.penalty_window, 0));
    if (options.penalty_window > 0 && recent.size() > window) recent = recent.last(window);
    std::vector<TokenId> seen(recent.begin(), recent.end());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    const auto penalty = static_cast<float>(options.repeat_penalty);
    for (const TokenId id : seen) {
      if (id < 0 || static_cast<size_t>(id) >= adjusted.size()) continue;
      float& x = adjusted[static_cast<size_t>(id)];
      x = x > 0 ? x / penalty : x * penalty;
    }
  }
  if (options.presence_penalty != 0.0 || options.frequency_penalty != 0.0) {
    std::unordered_map<TokenId, int64_t> counts;
    for (const TokenId id : history) ++counts[id];
    for (const auto& [id, count] : counts) {
      if (id < 0 || static_cast<size_t>(id) >= adjusted.size()) continue;
      adjusted[static_cast<size_t>(id)] -=
          static_cast<float>(options.presence_penalty + options.frequency_penalty * static_cast<double>(count));
    }
  }
  return adjusted;
}

// Candidates that survive top-k, most likely first.
std::vector<Candidate> keep_top_k(std::span<const float> logits, int64_t top_k) {
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != kMinusInfinity) candidates.push_back({static_cast<TokenId>(i), logits[i], 0.0});
  }
  const auto size = static_cast<int64_t>(candidates.size());
  if (top_k > 0 && top_k < size) {
    std::nth_element(candidates.begin(), candidates.begin() + (top_k - 1), candidates.end(), more_likely);
    candidates.resize(static_cast<size_t>(top_k));
  }
  std::sort(candidates.begin(), candidates.end(), more_likely);
  return candidates;
}

void set_probabilities(std::vector<Candidate>& candidates, double temperature) {
  const double greatest = candidates.front().logit;
  double sum = 0.0;
  for (Candidate& c : candidates) sum += c.probability = std::exp((c.logit - greatest) / temperature);
  for (Candidate& c : candidates) c.probability /= sum;
}

}  // namespace

std::vector<std::string> SamplingOptions::problems(int64_t vocab_size) const {
  std::vector<std::string> found;
  const auto check = [&found](bool sound, const char* name, double value, const char* expected) {
    if (!sound) found.push_back(fmt::format("{}: got {}, expected {}", name, value, expected));
  };
  check(std::isfinite(temperature) && temperature >= 0, "temperature", temperature, "a finite number, 0 or more");
  check(top_p >= 0 && top_p <= 1, "top-p", top_p, "0 to 1");
  check(min_p >= 0 && min_p <= 1, "min-p", min_p, "0 to 1");
  check(std::isfinite(repeat_penalty) && repeat_penalty > 0, "repeat-penalty", repeat_penalty,
        "a finite number above 0");
  check(std::abs(presence_penalty) <= 2, "presence-penalty", presence_penalty, "-2 to 2");
  check(std::abs(frequency_penalty) <= 2, "frequency-penalty", frequency_penalty, "-2 to 2");
  check(penalty_window >= -1, "penalty window", static_cast<double>(penalty_window), "-1 or more");
  for (const auto& [id, bias] : logit_bias) {
    check(id >= 0 && id < vocab_size, "logit bias token", id, "an id of the vocabulary");
    check(!std::isnan(bias) && bias != std::numeric_limits<float>::infinity(), "logit bias", bias, "a number");
  }
  return found;
}

Sampler::Sampler(SamplingOptions options, int64_t vocab_size) : options_(std::move(options)), vocab_size_(vocab_size) {
  const auto problems = options_.problems(vocab_size);
  if (problems.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              {.where = "sampling", .expected = {}, .got = fmt::format("{}", fmt::join(problems, "; ")), .advice = {}});
}

TokenId Sampler::pick(std::span<const float> logits, std::span<const TokenId> history, uint64_t draw) const {
  if (static_cast<int64_t>(logits.size()) != vocab_size_) {
    throw Error(ErrorCode::shape_mismatch, {.where = "sampler",
                                            .expected = fmt::format("[{}]", vocab_size_),
                                            .got = fmt::format("logits [{}]", logits.size()),
                                            .advice = {}});
  }
  checked_maximum(logits);
  std::vector<float> adjusted;
  const bool plain = options_.logit_bias.empty() && options_.repeat_penalty == 1.0 &&
                     options_.presence_penalty == 0.0 && options_.frequency_penalty == 0.0;
  if (!plain) {
    adjusted = with_bias_and_penalties(logits, history, options_);
    logits = adjusted;
    checked_maximum(logits);
  }
  if (options_.temperature < kGreedyBelow) {
    return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  std::vector<Candidate> candidates = keep_top_k(logits, options_.top_k);
  set_probabilities(candidates, 1.0);
  if (options_.top_p < 1.0) {
    double sum = 0.0;
    size_t kept = 0;
    while (kept < candidates.size() && (kept == 0 || sum < options_.top_p)) sum += candidates[kept++].probability;
    candidates.resize(kept);
  }
  if (options_.min_p > 0.0) {
    const double least = candidates.front().probability * options_.min_p;
    size_t kept = 1;
    while (kept < candidates.size() && candidates[kept].probability >= least) ++kept;
    candidates.resize(kept);
  }
  set_probabilities(candidates, options_.temperature);
  double left = uniform_draw(options_.seed, draw);
  for (const Candidate& c : candidates) {
    left -= c.probability;
    if (left < 0) return c.id;
  }
  return candidates.back().id;  // the probabilities' rounding may leave a crumb
}

float logprob(std::span<const float> logits, TokenId id) {
  const float maximum = checked_maximum(logits);
  return static_cast<float>(logits[static_cast<size_t>(id)] - log_sum_exp(logits, maximum));
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int64_t count) {
  const float maximum = checked_maximum(logits);
  const double total = log_sum_exp(logits, maximum);
  std::vector<TokenLogprob> top;
  if (count <= 0) return top;
  for (const Candidate& c : keep_top_k(logits, count)) top.push_back({c.id, static_cast<float>(c.logit - total)});
  return top;
}

double uniform_draw(uint64_t seed, uint64_t counter) noexcept {
  // SplitMix64 (Steele, Lea, Flood 2014) of the two, so that draw n needs no state but n.
  uint64_t z = seed + 0x9e3779b97f4a7c15ULL * (counter + 1);
  for (int round = 0; round < 2; ++round) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    z ^= z >> 31;
  }
  return static_cast<double>(z >> 11) * 0x1.0p-53;
}

}  // namespace slipring
