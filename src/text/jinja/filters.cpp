// Filters of collections, and the table of all.
#include "text/jinja/filters.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "text/jinja/builtins.h"

namespace slipring::jinja {
namespace {

const std::string& need_text(std::string_view filter, const Value& input) {
  if (!input.is_string()) refuse(std::string(filter), "a string", std::string(input.type_name()));
  return input.text();
}

// "a.b.0": entries within entries, as `attribute=` arguments spell them.
Value dig(Renderer& renderer, Value value, const Value& path) {
  if (path.is_integer()) return get_item(renderer, value, path);
  const std::string& text = need_text("attribute", path);
  for (size_t at = 0; at <= text.size();) {
    const size_t dot = std::min(text.find('.', at), text.size());
    const std::string part = text.substr(at, dot - at);
    int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = !part.empty() && parsed.ec == std::errc() && parsed.ptr == part.data() + part.size();
    if (value.is_undefined()) return value;
    value = get_item(renderer, value, number ? Value::integer(index) : Value::string(part));
    at = dot + 1;
  }
  return value;
}

Arguments tail(const Arguments& arguments, size_t count) {
  Arguments rest;
  for (size_t i = count; i < arguments.positional.size(); ++i) rest.positional.push_back(arguments.positional[i]);
  rest.named = arguments.named;
  return rest;
}

Value filter_length(Renderer& renderer, const Value& input, const Arguments&) {
  if (input.is_undefined()) return Value::integer(0);
  if (input.is_string()) renderer.work(input.text().size());
  if (input.is_string()) return Value::integer(static_cast<int64_t>(count_characters(input.text())));
  if (input.is_list()) return Value::integer(static_cast<int64_t>(input.items().items.size()));
  if (input.is_dict()) return Value::integer(static_cast<int64_t>(input.entries().entries.size()));
  refuse("length", "a string, list or dictionary", std::string(input.type_name()));
}
Value filter_first(Renderer& renderer, const Value& input, const Arguments&) {
  const auto items = iterate(renderer, input);
  return items.empty() ? renderer.make_undefined("the first item of nothing") : items.front();
}
Value filter_last(Renderer& renderer, const Value& input, const Arguments&) {
  const auto items = iterate(renderer, input);
  return items.empty() ? renderer.make_undefined("the last item of nothing") : items.back();
}
Value filter_list(Renderer& renderer, const Value& input, const Arguments&) {
  return renderer.make_list(iterate(renderer, input));
}
Value filter_reverse(Renderer& renderer, const Value& input, const Arguments&) {
  auto items = iterate(renderer, input);
  std::reverse(items.begin(), items.end());
  if (!input.is_string()) return renderer.make_list(std::move(items));
  std::string out;
  for (const Value& letter : items) out += letter.text();
  return renderer.make_string(std::move(out));
}
Value filter_join(Renderer& renderer, const Value& input, const Arguments& arguments) {
  const Value* separator = arguments.find(0, "d");
  const std::string between = separator != nullptr ? renderer.text_of(*separator) : "";
  const Value* attribute = arguments.find(1, "attribute");
  std::string out;
  bool first = true;
  for (const Value& item : iterate(renderer, input)) {
    if (!first) out += between;
    first = false;
    out += renderer.text_of(attribute != nullptr && !attribute->is_none() ? dig(renderer, item, *attribute) : item);
    if (out.size() > renderer.limits().output_bytes) renderer.charge(out.size());
  }
  return renderer.make_string(std::move(out));
}
Value filter_default(Renderer& renderer, const Value& input, const Arguments& arguments) {
  const bool any_false = flag_argument(arguments, 1, "boolean", false);
  if (!input.is_undefined() && (!any_false || input.truthy())) return input;
  const Value* fallback = arguments.find(0, "default_value");
  return fallback != nullptr ? *fallback : renderer.make_string("");
}
Value filter_items(Renderer& renderer, const Value& input, const Arguments&) {
  if (input.is_undefined()) return renderer.make_list({});
  if (!input.is_dict()) refuse("items", "a dictionary", std::string(input.type_name()));
  std::vector<Value> items;
  for (const auto& [key, value] : input.entries().entries)
    items.push_back(renderer.make_tuple({renderer.make_string(key), value}));
  return renderer.make_list(std::move(items));
}

// The value that sorting and comparing look at: strings without case unless asked otherwise.
Value sort_key(Renderer& renderer, const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? renderer.make_string(ascii_case(value.text(), false)) : value;
}
void sort_by_key(Renderer& renderer, std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
  // less() throws where values have no order, before anything is moved twice.
  std::stable_sort(keyed.begin(), keyed.end(), [&renderer, reverse](const auto& a, const auto& b) {
    return reverse ? less(renderer, b.first, a.first) : less(renderer, a.first, b.first);
  });
}
Value values_of(Renderer& renderer, std::vector<std::pair<Value, Value>> keyed) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (auto& entry : keyed) items.push_back(std::move(entry.second));
  return renderer.make_list(std::move(items));
}
Value filter_dictsort(Renderer& renderer, const Value& input, const Arguments& arguments) {
  if (!input.is_dict()) refuse("dictsort", "a dictionary", std::string(input.type_name()));
  const bool case_sensitive = flag_argument(arguments, 0, "case_sensitive", false);
  const bool by_value = text_argument(arguments, 1, "by", "key") == "value";
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : input.entries().entries) {
    const Value name = renderer.make_string(key);
    keyed.emplace_back(sort_key(renderer, by_value ? value : name, case_sensitive), renderer.make_tuple({name, value}));
  }
  sort_by_key(renderer, keyed, flag_argument(arguments, 2, "reverse", false));
  return values_of(renderer, std::move(keyed));
}
Value filter_sort(Renderer& renderer, const Value& input, const Arguments& arguments) {
  const bool case_sensitive = flag_argument(arguments, 1, "case_sensitive", false);
  const Value* attribute = arguments.find(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : iterate(renderer, input)) {
    const Value key = attribute != nullptr && !attribute->is_none() ? dig(renderer, item, *attribute) : item;
    keyed.emplace_back(sort_key(renderer, key, case_sensitive), std::move(item));
  }
  sort_by_key(renderer, keyed, flag_argument(arguments, 0, "reverse", false));
  return values_of(renderer, std::move(keyed));
}
Value filter_unique(Renderer& renderer, const Value& input, const Arguments& arguments) {
  const bool case_sensitive = flag_argument(arguments, 0, "case_sensitive", false);
  const Value* attribute = arguments.find(1, "attribute");
  std::vector<Value> seen;
  std::vector<Value> items;
  for (const Value& item : iterate(renderer, input)) {
    const Value key =
        sort_key(renderer, attribute != nullptr && !attribute->is_none() ? dig(renderer, item, *attribute) : item,
                 case_sensitive);
    const auto same = [&renderer, &key](const Value& other) { return equal(renderer, other, key); };
    if (std::any_of(seen.begin(), seen.end(), same)) continue;
    seen.push_back(key);
    items.push_back(item);
  }
  return renderer.make_list(std::move(items));
}
template <bool kLargest>
Value filter_extreme(Renderer& renderer, const Value& input, const Arguments& arguments) {
  const bool case_sensitive = flag_argument(arguments, 0, "case_sensitive", false);
  const Value* attribute = arguments.find(1, "attribute");
  Value best = renderer.make_undefined("the extreme of nothing");
  Value best_key;
  for (const Value& item : iterate(renderer, input)) {
    const Value key =
        sort_key(renderer, attribute != nullptr && !attribute->is_none() ? dig(renderer, item, *attribute) : item,
                 case_sensitive);
    if (best.is_undefined() || (kLargest ? less(renderer, best_key, key) : less(renderer, key, best_key))) {
      best = item;
      best_key = key;
    }
  }
  return best;
}
Value filter_sum(Renderer& renderer, const Value& input, const Arguments& arguments) {
  const Value* attribute = arguments.find(0, "attribute");
  const Value* start = arguments.find(1, "start");
  bool floating = start != nullptr && start->is_float();
  double total = start != nullptr && start->is_number() ? start->as_double() : 0;
  int64_t whole = start != nullptr && start->is_integer() ? start->as_integer() : 0;
  for (const Value& item : iterate(renderer, input)) {
    const Value value = attribute != nullptr && !attribute->is_none() ? dig(renderer, item, *attribute) : item;
    if (!value.is_number()) refuse("sum", "numbers", std::string(value.type_name()));
    floating = floating || value.is_float();
    total += value.as_double();
    if (!floating && __builtin_add_overflow(whole, value.as_integer(), &whole))
      refuse("sum", "integers of 64 bits", "more");
  }
  return floating ? Value::number(total) : Value::integer(whole);
}
Value filter_batch(Renderer& renderer, const Value& input, const Arguments& arguments) {
  const int64_t size = integer_argument(arguments, 0, "linecount", 0);
  if (size < 1 || size > 1'000'000) refuse("batch", "a size from 1 to 1000000", std::to_string(size));
  const Value* fill = arguments.find(1, "fill_with");
  std::vector<Value> rows;
  std::vector<Value> row;
  for (const Value& item : iterate(renderer, input)) {
    if (static_cast<int64_t>(row.size()) == size) rows.push_back(renderer.make_list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    while (fill != nullptr && !fill->is_none() && static_cast<int64_t>(row.size()) < size) row.push_back(*fill);
    rows.push_back(renderer.make_list(std::move(row)));
  }
  return renderer.make_list(std::move(rows));
}

Value filter_map(Renderer& renderer, const Value& input, const Arguments& arguments) {
  const Value* attribute = arguments.find(99, "attribute");
  const Value* fallback = arguments.find(99, "default");
  const Arguments rest = tail(arguments, 1);
  std::vector<Value> items;
  for (const Value& item : iterate(renderer, input)) {
    if (attribute != nullptr) {
      Value value = dig(renderer, item, *attribute);
      items.push_back(value.is_undefined() && fallback != nullptr ? *fallback : std::move(value));
    } else {
      if (arguments.positional.empty()) refuse("map", "a filter or an attribute", "nothing");
      items.push_back(apply_filter(renderer, need_text("map", arguments.positional[0]), item, rest));
    }
  }
  return renderer.make_list(std::move(items));
}

template <bool kAttribute, bool kKeep>
Value filter_select(Renderer& renderer, const Value& input, const Arguments& arguments) {
  constexpr size_t kTest = kAttribute ? 1 : 0;
  if (kAttribute && arguments.positional.empty()) refuse("selectattr", "an attribute", "nothing");
  const Arguments rest = tail(arguments, kTest + 1);
  std::vector<Value> items;
  for (const Value& item : iterate(renderer, input)) {
    renderer.charge(0);
    const Value subject = kAttribute ? dig(renderer, item, arguments.positional[0]) : item;
    const bool holds = arguments.positional.size() > kTest
                           ? apply_test(renderer, need_text("select", arguments.positional[kTest]), subject, rest)
                           : subject.truthy();
    if (holds == kKeep) items.push_back(item);
  }
  return renderer.make_list(std::move(items));
}

Value filter_attr(Renderer& renderer, const Value& input, const Arguments& arguments) {
  const Value* name = arguments.find(0, "name");
  if (name == nullptr || !input.is_object()) return Value();
  return get_attribute(renderer, input, need_text("attr", *name));
}

Value filter_tojson(Renderer& renderer, const Value& input, const Arguments& arguments) {
  JsonStyle style;
  style.ensure_ascii = flag_argument(arguments, 0, "ensure_ascii", false);
  const int64_t indent = integer_argument(arguments, 1, "indent", -1);
  if (indent > 64) refuse("tojson", "an indent up to 64", std::to_string(indent));
  style.indent = static_cast<int>(std::max<int64_t>(indent, -1));
  if (style.indent >= 0) style.item_separator = ",";
  const Value* separators = arguments.find(2, "separators");
  if (separators != nullptr && separators->is_list() && separators->items().items.size() == 2) {
    style.item_separator = renderer.text_of(separators->items().items[0]);
    style.key_separator = renderer.text_of(separators->items().items[1]);
  }
  style.sort_keys = flag_argument(arguments, 3, "sort_keys", false);
  return renderer.make_string(to_json(input, style, renderer.limits().output_bytes));
}

constexpr std::array kCollectionFilters = std::to_array<FilterEntry>({
    {"attr", filter_attr},
    {"batch", filter_batch},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"map", filter_map},
    {"max", filter_extreme<true>},
    {"min", filter_extreme<false>},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<true, false>},
    {"reverse", filter_reverse},
    {"select", filter_select<false, true>},
    {"selectattr", filter_select<true, true>},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"tojson", filter_tojson},
    {"unique", filter_unique},
});

}  // namespace

Value apply_filter(Renderer& renderer, std::string_view name, const Value& input, const Arguments& arguments) {
  // A filter can name a filter, as map does.
  const Renderer::CallLevel level(renderer);
  for (const std::span<const FilterEntry> table :
       {std::span<const FilterEntry>(kCollectionFilters), scalar_filters()}) {
    for (const FilterEntry& entry : table) {
      if (entry.name == name) return entry.filter(renderer, input, arguments);
    }
  }
  refuse("chat template", "a filter that is known", "'" + std::string(name) + "'");
}

}  // namespace slipring::jinja
