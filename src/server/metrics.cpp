#include "server/metrics.h"

#include <mutex>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sstream>

namespace slipring::server {
namespace {

const prometheus::Histogram::BucketBoundaries kSeconds = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                                          2.5,  5,     10,   30,  60,   300};

}  // namespace

struct Metrics::Families {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& requests = prometheus::BuildCounter()
                                                          .Name("slipring_http_requests_total")
                                                          .Help("Requests by path and status")
                                                          .Register(registry);
  prometheus::Histogram& first_token = prometheus::BuildHistogram()
                                           .Name("slipring_first_token_seconds")
                                           .Help("Time from a request to its first token")
                                           .Register(registry)
                                           .Add({}, kSeconds);
  prometheus::Histogram& duration = prometheus::BuildHistogram()
                                        .Name("slipring_reply_seconds")
                                        .Help("Time from a request to the end of its reply")
                                        .Register(registry)
                                        .Add({}, kSeconds);
  prometheus::Counter& reply_prompt_tokens =
      counter("slipring_reply_prompt_tokens_total", "Prompt tokens of ended replies");
  prometheus::Counter& reply_tokens =
      counter("slipring_reply_completion_tokens_total", "Generated tokens of ended replies");
  prometheus::Counter& prompt_tokens = counter("slipring_prompt_tokens_total", "Prompt tokens computed");
  prometheus::Counter& generated_tokens = counter("slipring_generated_tokens_total", "Tokens generated");
  prometheus::Counter& steps = counter("slipring_steps_total", "Passes over the weights");
  prometheus::Counter& finished =
      counter("slipring_generations_finished_total", "Generations that ended by themselves");
  prometheus::Counter& cancelled = counter("slipring_generations_cancelled_total", "Generations whose client left");
  prometheus::Counter& failed = counter("slipring_generations_failed_total", "Generations that ended with an error");
  prometheus::Counter& rejected = counter("slipring_generations_rejected_total", "Generations refused by a full queue");
  prometheus::Gauge& running = gauge("slipring_generations_running", "Generations that hold caches");
  prometheus::Gauge& queued = gauge("slipring_generations_queued", "Generations that wait for a place");
  prometheus::Gauge& kv_bytes = gauge("slipring_kv_bytes", "Memory of all keys and values, in bytes");
  prometheus::Counter& prefix_hits = counter("slipring_prefix_hits_total", "Prompts that began as an earlier text did");
  prometheus::Counter& prefix_misses = counter("slipring_prefix_misses_total", "Prompts that did not");
  prometheus::Counter& prefix_tokens =
      counter("slipring_prefix_reused_tokens_total", "Prompt tokens restored instead of computed");
  prometheus::Counter& prefix_evicted =
      counter("slipring_prefix_evicted_total", "Snapshots dropped to keep the budget");
  prometheus::Gauge& prefix_snapshots = gauge("slipring_prefix_snapshots", "Snapshots in the prefix store");
  prometheus::Gauge& prefix_bytes = gauge("slipring_prefix_bytes", "Memory of the prefix store, in bytes");
  prometheus::Gauge& step_seconds = gauge("slipring_last_step_seconds", "Time of the last pass over the weights");
  std::mutex mutex;

 private:
  prometheus::Counter& counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
  }
  prometheus::Gauge& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
  }
};

Metrics::Metrics() : families_(std::make_unique<Families>()) {}
Metrics::~Metrics() = default;

void Metrics::count_request(const std::string& path, int status) {
  families_->requests.Add({{"path", path}, {"status", std::to_string(status)}}).Increment();
}

void Metrics::observe_reply(double first_token_seconds, double seconds, int64_t prompt_tokens,
                            int64_t completion_tokens) {
  if (first_token_seconds >= 0) families_->first_token.Observe(first_token_seconds);
  families_->duration.Observe(seconds);
  families_->reply_prompt_tokens.Increment(static_cast<double>(prompt_tokens));
  families_->reply_tokens.Increment(static_cast<double>(completion_tokens));
}

std::string Metrics::print(const SchedulerView& view) {
  const std::lock_guard lock(families_->mutex);
  // The scheduler counts by itself; a counter here takes over what was added since the last time.
  const auto follow = [](prometheus::Counter& counter, int64_t value) {
    counter.Increment(static_cast<double>(value) - counter.Value());
  };
  follow(families_->prompt_tokens, view.prompt_tokens);
  follow(families_->generated_tokens, view.generated_tokens);
  follow(families_->steps, view.steps);
  follow(families_->finished, view.finished);
  follow(families_->cancelled, view.cancelled);
  follow(families_->failed, view.failed);
  follow(families_->rejected, view.rejected);
  follow(families_->prefix_hits, view.prefixes.hits);
  follow(families_->prefix_misses, view.prefixes.misses);
  follow(families_->prefix_tokens, view.prefixes.reused_tokens);
  follow(families_->prefix_evicted, view.prefixes.evicted);
  families_->prefix_snapshots.Set(static_cast<double>(view.prefixes.snapshots));
  families_->prefix_bytes.Set(static_cast<double>(view.prefixes.bytes));
  families_->running.Set(static_cast<double>(view.running));
  families_->queued.Set(static_cast<double>(view.queued));
  families_->kv_bytes.Set(static_cast<double>(view.kv_bytes));
  families_->step_seconds.Set(view.step_seconds);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families_->registry.Collect());
  return out.str();
}

}  // namespace slipring::server
