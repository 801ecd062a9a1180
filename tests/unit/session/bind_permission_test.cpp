// SPDX-License-Identifier: Apache-2.0
#include "session/bind_permission.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "secure/credentials.hpp"
#include "support/expect.hpp"
#include "support/secure/holders.hpp"

namespace tendon::test {
namespace {

detail::SocketAddress place_of(const std::string& text) {
  return detail::resolve(Address::parse(text).value(), kPatience, detail::ResolveFor::bind)
      .value()
      .front();
}
std::shared_ptr<const detail::secure::Credentials> some_credentials() {
  detail::secure::CredentialParts parts;
  parts.keys.push_back({"fleet", detail::SecretBytes(detail::kSharedKeyBytes), {}});
  return detail::secure::Credentials::make(std::move(parts)).value();
}
Result<void> asked(const std::string& place, const Security& security) {
  return detail::may_bind(security, place_of(place), place, "a.bind");
}

constexpr const char* kHere[] = {"127.0.0.1:0",          "127.9.9.9:1", "[::1]:0",
                                 "[::ffff:127.0.0.1]:0", "unix:/tmp/x", "unix:@x"};
constexpr const char* kRoutable[] = {"0.0.0.0:0",   "[::]:0",      "10.0.0.5:1",
                                     "[fd00::1]:1", "128.0.0.1:1", "[::ffff:10.0.0.5]:1"};

TEST(BindPermission, HereNeedsNothing) {
  for (const char* place : kHere) {
    EXPECT_TRUE(succeeds(asked(place, {}))) << place;
    EXPECT_TRUE(succeeds(asked(place, {Profile::plaintext}))) << place;
    EXPECT_TRUE(succeeds(asked(place, {Profile::secure, some_credentials()}))) << place;
  }
}

TEST(BindPermission, ElsewhereNeedsCredentialsOrPlaintextByName) {
  for (const char* place : kRoutable) {
    const auto refused = asked(place, {});
    EXPECT_TRUE(fails_with(refused, ErrorCode::permission_denied, place));
    EXPECT_TRUE(fails_with(refused, ErrorCode::permission_denied, "--insecure-plaintext"));
    EXPECT_TRUE(succeeds(asked(place, {Profile::plaintext}))) << place;
    EXPECT_TRUE(succeeds(asked(place, {Profile::secure, some_credentials()}))) << place;
  }
}

TEST(BindPermission, CredentialsAndPlaintextTogetherAreAMistakeAndSoIsSecureWithout) {
  for (const char* place : {"127.0.0.1:0", "0.0.0.0:0", "unix:@x"}) {
    EXPECT_TRUE(fails_with(asked(place, {Profile::plaintext, some_credentials()}),
                           ErrorCode::invalid_argument, "leave one"));
    EXPECT_TRUE(fails_with(asked(place, {Profile::local, some_credentials()}),
                           ErrorCode::invalid_argument, "leave one"));
    EXPECT_TRUE(
        fails_with(asked(place, {Profile::secure}), ErrorCode::invalid_argument, "credentials"));
  }
}

TEST(BindPermission, OfAHostIsThatOfEachOfItsAddresses) {
  EXPECT_TRUE(succeeds(detail::may_bind_host({}, "127.0.0.1", "a.bind")));
  EXPECT_TRUE(succeeds(detail::may_bind_host({}, "[::1]", "a.bind")));
  EXPECT_TRUE(succeeds(detail::may_bind_host({}, "localhost", "a.bind")));
  EXPECT_TRUE(fails_with(detail::may_bind_host({}, "0.0.0.0", "a.bind"),
                         ErrorCode::permission_denied, "0.0.0.0"));
  EXPECT_TRUE(succeeds(detail::may_bind_host({Profile::plaintext}, "0.0.0.0", "a.bind")));
}

}  // namespace
}  // namespace tendon::test
