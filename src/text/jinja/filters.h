// The tables of filters.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/renderer.h"
#include "text/jinja/value.h"

namespace slipring::jinja {

struct FilterEntry {
  std::string_view name;
  Value (*filter)(Renderer&, const Value& input, const Arguments&);
};

/// Those of text and of numbers.
std::span<const FilterEntry> scalar_filters();

}  // namespace slipring::jinja
