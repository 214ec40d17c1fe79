// Keys, hosts and origins: the odd spellings that were reported of other servers.
#include "server/access.h"

#include <gtest/gtest.h>

namespace slipring::server {
namespace {

const AccessRules kKeyed{
    .api_keys = {"secret-1", "secret-2"}, .allowed_hosts = {"box.example"}, .cors_origins = {"https://app.example"}};
const AccessRules kOpen{};

TEST(Access, KeysAreTakenInOneSpellingOnly) {
  EXPECT_TRUE(key_accepted(kKeyed, "Bearer secret-1"));
  EXPECT_TRUE(key_accepted(kKeyed, "bearer secret-2"));
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer  secret-1", "Bearer secret-1 ", "Bearer secret-3",
                            "Bearer secret-", "Bearer secret-11", "secret-1", "Basic secret-1", "Bearer SECRET-1"}) {
    EXPECT_FALSE(key_accepted(kKeyed, wrong)) << wrong;
  }
  EXPECT_TRUE(key_accepted(kOpen, ""));
}

TEST(Access, OnlyReadingPublicPathsIsPublic) {
  EXPECT_TRUE(is_public("GET", "/health"));
  EXPECT_TRUE(is_public("GET", "/"));
  for (const char* method : {"POST", "DELETE", "PUT", "PATCH"}) EXPECT_FALSE(is_public(method, "/health")) << method;
  for (const char* path : {"/metrics", "/debug/rings", "/v1/models", "/health/", "//health"}) {
    EXPECT_FALSE(is_public("GET", path)) << path;
  }
}

TEST(Access, ForeignHostNamesAreRefused) {
  for (const char* host : {"localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "192.168.1.7",
                           "box.example:80", "BOX.example"}) {
    EXPECT_TRUE(host_accepted(kKeyed, host)) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "",
                           "[::1", "box.example.evil"}) {
    EXPECT_FALSE(host_accepted(kKeyed, host)) << host;
  }
}

TEST(Access, OriginsAreNamedNeverReflected) {
  EXPECT_EQ(allow_origin(kKeyed, "https://app.example"), "https://app.example");
  for (const char* origin : {"https://evil.example", "null", "http://app.example", "https://app.example.evil", ""}) {
    EXPECT_EQ(allow_origin(kKeyed, origin), "") << origin;
    EXPECT_EQ(allow_origin(kOpen, origin), "") << origin;
  }
  EXPECT_EQ(allow_origin({.api_keys = {}, .allowed_hosts = {}, .cors_origins = {"*"}}, "https://any.example"), "*");
  EXPECT_TRUE(origin_accepted(kOpen, "", "localhost:8080"));
  EXPECT_TRUE(origin_accepted(kOpen, "http://localhost:8080", "localhost:8080"));
  EXPECT_FALSE(origin_accepted(kOpen, "http://localhost:9090", "localhost:8080"));
  EXPECT_FALSE(origin_accepted(kOpen, "null", "localhost:8080"));
  EXPECT_FALSE(origin_accepted(kOpen, "https://evil.example", "localhost:8080"));
}

}  // namespace
}  // namespace slipring::server
