// What the server counts, for Prometheus.
#pragma once

#include <memory>
#include <string>

#include <slipring/scheduler.h>

namespace slipring::server {

/// Threads: all functions from any thread.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  void count_request(const std::string& path, int status);
  /// A reply that ended: its times in seconds, and its tokens.
  void observe_reply(double first_token_seconds, double seconds, int64_t prompt_tokens, int64_t completion_tokens);
  /// The text form, with the scheduler's numbers as they are now.
  std::string print(const SchedulerView& view);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace slipring::server
