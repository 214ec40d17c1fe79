// Who may ask: keys, hosts and origins. Pure functions, so that every rule is a test.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slipring::server {

struct AccessRules {
  std::vector<std::string> api_keys;       ///< empty: no key is needed
  std::vector<std::string> allowed_hosts;  ///< names in Host headers, beside localhost and IP addresses
  std::vector<std::string> cors_origins;   ///< origins of other sites' pages that may call; "*" for all
};

/// Whether "Bearer KEY" holds one of the keys. Takes the same time wherever a wrong key differs.
bool key_accepted(const AccessRules& rules, std::string_view authorization);

/// Paths that need no key, for reading only: the page and the health check.
bool is_public(std::string_view method, std::string_view path);

/// Whether the Host header names this server: localhost, an IP address or a name of the rules, with or without a port.
/// A page that a foreign name was rebound for sends that name.
bool host_accepted(const AccessRules& rules, std::string_view host);

/// Whether a page of `origin` may call: one that the rules name, or one that this server served itself (`host`).
bool origin_accepted(const AccessRules& rules, std::string_view origin, std::string_view host);
/// What Access-Control-Allow-Origin says to `origin`; empty for no header.
std::string allow_origin(const AccessRules& rules, std::string_view origin);

}  // namespace slipring::server
