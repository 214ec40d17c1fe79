// Methods of strings, lists and dictionaries: Python's, those that change nothing.
#include <algorithm>
#include <array>

#include "text/jinja/builtins.h"
#include "text/jinja/text_search.h"
#include "text/jinja/utf8.h"

namespace slipring::jinja {

namespace {

using Method = Value (*)(Renderer&, const Value&, const Arguments&);

class BoundMethod : public Object {
 public:
  BoundMethod(Value self, Method method) : self_(std::move(self)), method_(method) {}
  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  int depth() const override { return self_.depth() + 1; }
  Value call(Renderer& renderer, const Arguments& arguments) override {
    // Most methods of a string look at all of it.
    if (self_.is_string()) renderer.work(self_.text().size());
    return method_(renderer, self_, arguments);
  }

 private:
  Value self_;
  Method method_;
};

// ---- strings
template <bool kLeft, bool kRight>
Value strip_method(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Value* wanted = arguments.find(0, "chars");
  const bool given = wanted != nullptr && wanted->is_string();
  return renderer.make_string(strip(renderer, self.text(), given ? &wanted->text() : nullptr, kLeft, kRight));
}

// Matches come in the order that the limit counts them in: from the left, or from the right.
std::vector<Value> split_on(Renderer& renderer, std::string_view text, const std::string& separator, int64_t limit,
                            bool from_right) {
  if (separator.empty()) refuse("split", "a separator that is not empty", "\"\"");
  std::vector<Value> pieces;
  size_t begin = 0;
  size_t end = text.size();
  TextSearch search(renderer, text, separator, from_right);
  for (int64_t cuts = 0; limit < 0 || cuts < limit; ++cuts) {
    const size_t hit = search.next();
    if (hit == std::string::npos) break;
    const size_t behind = hit + separator.size();
    renderer.add_string(pieces, from_right ? text.substr(behind, end - behind) : text.substr(begin, hit - begin));
    if (from_right) {
      end = hit;
    } else {
      begin = behind;
    }
  }
  renderer.add_string(pieces, text.substr(begin, end - begin));
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<Value> split_blank(Renderer& renderer, std::string_view text, int64_t limit) {
  std::vector<Value> pieces;
  size_t at = 0;
  while (true) {
    size_t after = at;
    while (after < text.size() && is_space(next_code_point(text, after))) at = after;
    if (at >= text.size()) return pieces;
    if (limit >= 0 && static_cast<int64_t>(pieces.size()) >= limit) {
      renderer.add_string(pieces, text.substr(at));
      return pieces;
    }
    const size_t start = at;
    after = at;
    while (after < text.size() && !is_space(next_code_point(text, after))) at = after;
    renderer.add_string(pieces, text.substr(start, at - start));
  }
}

template <bool kFromRight>
Value split_method(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Value* separator = arguments.find(0, "sep");
  const int64_t limit = integer_argument(arguments, 1, "maxsplit", -1);
  if (separator == nullptr || separator->is_none()) {
    if (kFromRight && limit >= 0) refuse("rsplit", "a separator where a limit is given", "none");
    return renderer.make_list(split_blank(renderer, self.text(), limit));
  }
  const std::string between = text_argument(arguments, 0, "sep", "");
  return renderer.make_list(split_on(renderer, self.text(), between, limit, kFromRight));
}

Value splitlines_method(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const bool keep = flag_argument(arguments, 0, "keepends", false);
  std::vector<Value> lines;
  const std::string_view text = self.text();
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\n' && text[i] != '\r') continue;
    const size_t end = i;
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') ++i;
    renderer.add_string(lines, text.substr(begin, (keep ? i + 1 : end) - begin));
    begin = i + 1;
  }
  if (begin < text.size()) renderer.add_string(lines, text.substr(begin));
  return renderer.make_list(std::move(lines));
}

template <bool kStart>
Value affix_method(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Value* wanted = arguments.find(0, "prefix");
  const auto matches = [&self, &renderer](const Value& affix) {
    if (!affix.is_string()) refuse("startswith or endswith", "strings", std::string(affix.type_name()));
    const std::string& text = self.text();
    const std::string& part = affix.text();
    renderer.work(part.size());
    return part.size() <= text.size() && text.compare(kStart ? 0 : text.size() - part.size(), part.size(), part) == 0;
  };
  if (wanted == nullptr) refuse("startswith or endswith", "a string", "nothing");
  if (!wanted->is_list()) return Value::boolean(matches(*wanted));
  const auto& items = wanted->items().items;
  return Value::boolean(std::any_of(items.begin(), items.end(), matches));
}

template <bool kPrefix>
Value remove_affix_method(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const std::string part = text_argument(arguments, 0, kPrefix ? "prefix" : "suffix", "");
  const bool matches = affix_method<kPrefix>(renderer, self, arguments).truthy();
  if (!matches) return self;
  const size_t rest = self.text().size() - part.size();
  return renderer.make_string(self.text().substr(kPrefix ? part.size() : 0, rest));
}

Value replace_method(Renderer& renderer, const Value& self, const Arguments& arguments) {
  return renderer.make_string(replace_all(renderer, self.text(), text_argument(arguments, 0, "old", ""),
                                          text_argument(arguments, 1, "new", ""),
                                          integer_argument(arguments, 2, "count", -1)));
}

template <bool kRight, bool kThrows>
Value find_text_method(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const std::string part = text_argument(arguments, 0, "sub", "");
  const size_t hit = find_text(renderer, self.text(), part, kRight);
  if (hit == std::string::npos) {
    if (kThrows) refuse("index", "a string that is there", "\"" + part + "\"");
    return Value::integer(-1);
  }
  return Value::integer(static_cast<int64_t>(count_characters(std::string_view(self.text()).substr(0, hit))));
}

Value count_text_method(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const std::string part = text_argument(arguments, 0, "sub", "");
  if (part.empty()) return Value::integer(static_cast<int64_t>(count_characters(self.text())) + 1);
  int64_t count = 0;
  TextSearch search(renderer, self.text(), part);
  while (search.next() != std::string::npos) ++count;
  return Value::integer(count);
}

template <bool kRight>
Value partition_method(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const std::string separator = text_argument(arguments, 0, "sep", "");
  if (separator.empty()) refuse("partition", "a separator that is not empty", "\"\"");
  const size_t hit = find_text(renderer, self.text(), separator, kRight);
  if (hit == std::string::npos) {
    const Value empty = renderer.make_string("");
    return kRight ? renderer.make_tuple({empty, empty, self}) : renderer.make_tuple({self, empty, empty});
  }
  return renderer.make_tuple({renderer.make_string(self.text().substr(0, hit)), renderer.make_string(separator),
                              renderer.make_string(self.text().substr(hit + separator.size()))});
}

Value join_method(Renderer& renderer, const Value& self, const Arguments& arguments) {
  std::string out;
  bool first = true;
  for (const Value& item : iterate(renderer, arguments.positional.empty() ? Value() : arguments.positional[0])) {
    if (!item.is_string()) refuse("join", "strings", std::string(item.type_name()));
    if (!first) out += self.text();
    first = false;
    out += item.text();
    if (out.size() > renderer.limits().output_bytes) renderer.charge(out.size());
  }
  return renderer.make_string(std::move(out));
}

template <bool kLeft, bool kRight>
Value justify_method(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const int64_t width = integer_argument(arguments, 0, "width", 0);
  const std::string fill = text_argument(arguments, 1, "fillchar", " ");
  const auto size = static_cast<int64_t>(count_characters(self.text()));
  if (width <= size) return self;
  if (count_characters(fill) != 1) refuse("ljust, rjust or center", "one character to fill with", "another string");
  const size_t most = renderer.limits().output_bytes;
  if (width > static_cast<int64_t>(most / 4)) renderer.charge(most + 1);
  const int64_t room = width - size;
  const int64_t before = kLeft && kRight ? room / 2 + (room & width & 1) : kRight ? room : 0;
  std::string out;
  for (int64_t i = 0; i < before; ++i) out += fill;
  out += self.text();
  for (int64_t i = before; i < room; ++i) out += fill;
  return renderer.make_string(std::move(out));
}

template <int kClass>
Value class_method(Renderer&, const Value& self, const Arguments&) {
  // 0 digits, 1 letters, 2 either, 3 blanks, 4 lower case, 5 upper case. Letters beyond ASCII count as letters.
  bool cased = false;
  bool all = !self.text().empty();
  for (size_t at = 0; at < self.text().size();) {
    const uint32_t code = next_code_point(self.text(), at);
    const bool lower = code >= 'a' && code <= 'z';
    const bool upper = code >= 'A' && code <= 'Z';
    const bool digit = code >= '0' && code <= '9';
    const bool letter = lower || upper || (code >= 0x80 && !is_space(code));
    cased = cased || lower || upper;
    const bool fits[] = {digit, letter, digit || letter, is_space(code), !upper, !lower};
    all = all && fits[kClass];
  }
  return Value::boolean(all && (kClass < 4 || cased));
}

// ---- dictionaries
template <int kWhat>
Value entries_method(Renderer& renderer, const Value& self, const Arguments&) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.entries().entries) {
    items.push_back(kWhat == 0   ? renderer.make_tuple({renderer.make_string(key), value})
                    : kWhat == 1 ? renderer.make_string(key)
                                 : value);
  }
  return renderer.make_list(std::move(items));
}
Value get_method(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Value* key = arguments.find(0, "key");
  if (key != nullptr && key->is_string()) renderer.work(key->text().size());
  const Value* found = key != nullptr && key->is_string() ? self.entries().find(key->text()) : nullptr;
  if (found != nullptr) return *found;
  const Value* fallback = arguments.find(1, "default");
  return fallback != nullptr ? *fallback : Value::none();
}
Value copy_method(Renderer&, const Value& self, const Arguments&) {
  return self;
}

// ---- lists
Value index_method(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const auto& items = self.items().items;
  for (size_t i = 0; i < items.size() && !arguments.positional.empty(); ++i) {
    if (equal(renderer, items[i], arguments.positional[0])) return Value::integer(static_cast<int64_t>(i));
  }
  refuse("index", "an item that is in the list", "one that is not");
}
Value count_method(Renderer& renderer, const Value& self, const Arguments& arguments) {
  int64_t count = 0;
  for (const Value& item : self.items().items) {
    if (!arguments.positional.empty() && equal(renderer, item, arguments.positional[0])) ++count;
  }
  return Value::integer(count);
}

Value text_upper(Renderer& renderer, const Value& self, const Arguments&) {
  return renderer.make_string(ascii_case(self.text(), true));
}
Value text_lower(Renderer& renderer, const Value& self, const Arguments&) {
  return renderer.make_string(ascii_case(self.text(), false));
}
Value text_capitalize(Renderer& renderer, const Value& self, const Arguments&) {
  return renderer.make_string(capitalize(self.text()));
}
Value text_title(Renderer& renderer, const Value& self, const Arguments&) {
  return renderer.make_string(title(self.text()));
}

struct Entry {
  std::string_view name;
  Method method;
};

constexpr std::array kStringMethods = std::to_array<Entry>({
    {"strip", strip_method<true, true>},
    {"lstrip", strip_method<true, false>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", splitlines_method},
    {"startswith", affix_method<true>},
    {"endswith", affix_method<false>},
    {"removeprefix", remove_affix_method<true>},
    {"removesuffix", remove_affix_method<false>},
    {"replace", replace_method},
    {"upper", text_upper},
    {"lower", text_lower},
    {"casefold", text_lower},
    {"capitalize", text_capitalize},
    {"title", text_title},
    {"find", find_text_method<false, false>},
    {"rfind", find_text_method<true, false>},
    {"index", find_text_method<false, true>},
    {"rindex", find_text_method<true, true>},
    {"count", count_text_method},
    {"partition", partition_method<false>},
    {"rpartition", partition_method<true>},
    {"join", join_method},
    {"ljust", justify_method<true, false>},
    {"rjust", justify_method<false, true>},
    {"center", justify_method<true, true>},
    {"isdigit", class_method<0>},
    {"isalpha", class_method<1>},
    {"isalnum", class_method<2>},
    {"isspace", class_method<3>},
    {"islower", class_method<4>},
    {"isupper", class_method<5>},
});
constexpr std::array kDictMethods = std::to_array<Entry>({
    {"items", entries_method<0>},
    {"keys", entries_method<1>},
    {"values", entries_method<2>},
    {"get", get_method},
    {"copy", copy_method},
});
constexpr std::array kListMethods = std::to_array<Entry>({
    {"index", index_method},
    {"count", count_method},
    {"copy", copy_method},
});

template <size_t N>
std::optional<Value> bind(Renderer& renderer, const std::array<Entry, N>& table, const Value& self,
                          const std::string& name) {
  for (const Entry& entry : table) {
    if (entry.name != name) continue;
    renderer.charge(0, kObjectBytes);
    return Value::object(std::make_shared<BoundMethod>(self, entry.method));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Value> find_method(Renderer& renderer, const Value& object, const std::string& name) {
  if (object.is_string()) return bind(renderer, kStringMethods, object, name);
  if (object.is_dict()) return bind(renderer, kDictMethods, object, name);
  if (object.is_list()) return bind(renderer, kListMethods, object, name);
  return std::nullopt;
}

}  // namespace slipring::jinja
