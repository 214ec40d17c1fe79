#include "server/access.h"

#include <algorithm>

namespace slipring::server {
namespace {

// The length may show; the bytes do not.
bool same_bytes(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  }
  return difference == 0;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

std::string without_port(std::string_view host) {
  if (!host.empty() && host.front() == '[') {
    const size_t close = host.find(']');
    return close == std::string_view::npos ? "" : lower(host.substr(1, close - 1));
  }
  const size_t colon = host.find(':');
  return lower(colon == std::string_view::npos ? host : host.substr(0, colon));
}

bool is_ip_address(std::string_view name) {
  if (name.empty()) return false;
  if (name.find(':') != std::string_view::npos) {
    return name.find_first_not_of("0123456789abcdef:.%") == std::string_view::npos;
  }
  return name.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

bool key_accepted(const AccessRules& rules, std::string_view authorization) {
  if (rules.api_keys.empty()) return true;
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() <= kScheme.size() || lower(authorization.substr(0, kScheme.size())) != kScheme) return false;
  const std::string_view key = authorization.substr(kScheme.size());
  bool accepted = false;
  // Every key is looked at, so that the time does not tell which one it was.
  for (const std::string& known : rules.api_keys) accepted = same_bytes(known, key) || accepted;
  return accepted;
}

bool is_public(std::string_view method, std::string_view path) {
  if (method != "GET" && method != "HEAD") return false;
  return path == "/health" || path == "/" || path == "/app.js" || path == "/rings.js" || path == "/style.css";
}

bool host_accepted(const AccessRules& rules, std::string_view host) {
  const std::string name = without_port(host);
  if (name == "localhost" || is_ip_address(name)) return true;
  return std::any_of(rules.allowed_hosts.begin(), rules.allowed_hosts.end(),
                     [&name](const std::string& allowed) { return lower(allowed) == name; });
}

bool origin_accepted(const AccessRules& rules, std::string_view origin, std::string_view host) {
  if (origin.empty() || !allow_origin(rules, origin).empty()) return true;
  const size_t scheme = origin.find("://");
  return scheme != std::string_view::npos && !host.empty() && lower(origin.substr(scheme + 3)) == lower(host);
}

std::string allow_origin(const AccessRules& rules, std::string_view origin) {
  for (const std::string& allowed : rules.cors_origins) {
    if (allowed == "*") return "*";
    if (!origin.empty() && allowed == origin) return allowed;
  }
  return "";
}

}  // namespace slipring::server
