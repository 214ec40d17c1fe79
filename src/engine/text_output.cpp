#include "engine/text_output.h"

namespace slipring {

std::string TextOutput::filter(std::string piece, bool end) {
  if (stopped_) return {};
  held_ += piece;
  size_t stop_at = std::string::npos;
  for (const std::string& stop : stops_) {
    if (!stop.empty()) stop_at = std::min(stop_at, held_.find(stop));
  }
  if (stop_at != std::string::npos) {
    stopped_ = true;
    std::string text = held_.substr(0, stop_at);
    held_.clear();
    return text;
  }
  size_t keep = 0;  // the longest tail that a stop string may begin with
  if (!end) {
    for (const std::string& stop : stops_) {
      for (size_t length = std::min(stop.empty() ? 0 : stop.size() - 1, held_.size()); length > keep; --length) {
        if (held_.compare(held_.size() - length, length, stop, 0, length) == 0) {
          keep = length;
          break;
        }
      }
    }
  }
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, text.size());
  return text;
}

}  // namespace slipring
