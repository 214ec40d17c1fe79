// Where one string stands in another, in linear time: a template chooses both.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/renderer.h"

namespace slipring::jinja {

/// The matches that do not overlap, one after the other. std::string's find() would take the product of both lengths.
class TextSearch {
 public:
  /// Charges the renderer for one walk over both. Both strings outlive this. @pre `part` is not empty
  /// @param from_right begins with the last match and goes left
  TextSearch(Renderer& renderer, std::string_view text, std::string_view part, bool from_right = false);

  /// Offset of the next match in the text, or npos.
  size_t next();

 private:
  std::string reversed_text_;  // from the right: the search runs on both written backwards
  std::string reversed_part_;
  std::string_view text_;
  std::string_view part_;
  bool from_right_;
  size_t at_ = 0;
};

/// Offset of the first match, or the last one; npos where there is none. An empty part is found at once.
size_t find_text(Renderer& renderer, std::string_view text, std::string_view part, bool last = false);

}  // namespace slipring::jinja
