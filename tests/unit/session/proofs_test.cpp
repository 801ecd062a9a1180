// SPDX-License-Identifier: Apache-2.0
#include "session/proofs.hpp"

#include <gtest/gtest.h>

#include "secure/credentials.hpp"
#include "support/child.hpp"
#include "support/expect.hpp"
#include "support/secure/holders.hpp"

namespace tendon::test {
namespace {

using detail::Proofs;

TEST(Proofs, AreNeededForWhatAProfileRequires) {
  EXPECT_TRUE(Proofs{}.satisfy(Profile::plaintext));
  EXPECT_FALSE(Proofs{}.satisfy(Profile::local));
  EXPECT_FALSE(Proofs{.identity = "a name"}.satisfy(Profile::local));
  EXPECT_TRUE(Proofs{.host = Proofs::Host::same_user}.satisfy(Profile::local));
  EXPECT_TRUE(Proofs{.identity = "a name"}.satisfy(Profile::secure));
  EXPECT_FALSE(Proofs{.host = Proofs::Host::same_user}.satisfy(Profile::secure));
  EXPECT_TRUE(Proofs{.host = Proofs::Host::same_user}.satisfy(Profile::plaintext));
}

TEST(Proofs, SayWhoAPeerIsBesideItsClaims) {
  const PeerIdentity claims{
      .context = {}, .incarnation = 7, .pid = 4711, .uid = 0, .host = "a", .name = "key:fleet"};
  struct Row {
    Proofs proofs;
    IdentityProof proof;
  };
  for (const auto& [proofs, proof] : {
           Row{{}, IdentityProof::none},
           Row{{.host = Proofs::Host::same_user}, IdentityProof::local},
           Row{{.identity = "key:fleet", .credential = "1"}, IdentityProof::key},
           Row{{.host = Proofs::Host::same_user, .identity = "key:a"}, IdentityProof::key},
           Row{{.identity = "tendon:robot-7"}, IdentityProof::certificate},
           Row{{.identity = "dns:a.example"}, IdentityProof::certificate},
       }) {
    const PeerIdentity peer = detail::with_proofs(claims, proofs);
    EXPECT_EQ(peer.identity, proofs.identity);
    EXPECT_EQ(peer.proof, proof) << proofs.identity;
    EXPECT_EQ(peer.name, "key:fleet") << "a claim, whatever it says";
    EXPECT_EQ(peer.pid, 4711);
  }
}

TEST(Proofs, ANameOutlivesItsCertificates) {
  const Proofs certificate{.identity = "tendon://robot/7", .credential = "one"};
  EXPECT_TRUE(certificate.has_name_of({.identity = "tendon://robot/7", .credential = "two"}));
  EXPECT_FALSE(certificate.has_name_of({.identity = "tendon://robot/8", .credential = "one"}));
  const Proofs key{.identity = "key:fleet", .credential = "one"};
  EXPECT_TRUE(key.has_name_of(key));
  EXPECT_FALSE(key.has_name_of({.identity = "key:fleet", .credential = "two"}));
}

TEST(Proofs, NeverSatisfyAProfileThatIsUnknown) {
  const auto later = static_cast<Profile>(4);
  EXPECT_FALSE(Proofs{}.satisfy(later));
  EXPECT_FALSE(Proofs{.host = Proofs::Host::same_user}.satisfy(later));
}

TEST(Proofs, ANameIsWantedByACertificateAlone) {
  const Certificate authority = Certificate::authority("ours");
  const auto why = [](Profile profile, SharedCredentials credentials) {
    return detail::check_credentials({profile, std::move(credentials), "robot-7"}, "test");
  };
  EXPECT_TRUE(why(Profile::secure, holder_of(authority.sign({}), authority)));
  EXPECT_TRUE(fails_with(why(Profile::secure, holder_of_key("fleet", 'a')),
                         ErrorCode::invalid_argument, "this end has none to show"));
  EXPECT_TRUE(fails_with(why(Profile::plaintext, nullptr), ErrorCode::invalid_argument,
                         "profile 'plaintext' uses none"));
  EXPECT_TRUE(fails_with(why(Profile::local, nullptr), ErrorCode::invalid_argument,
                         "leave peer 'robot-7' out"));
}

TEST(Proofs, CredentialsAreOfTheProcessThatLoadedThem) {
  detail::secure::CredentialParts parts;
  parts.keys.push_back(detail::make_shared_key("fleet").value());
  const Security security{
      .profile = Profile::secure,
      .credentials = detail::secure::Credentials::make(std::move(parts)).value()};
  EXPECT_TRUE(detail::check_credentials(security, "test"));
  const int status = run_in_child([&] {
    return fails_with(detail::check_credentials(security, "test"), ErrorCode::forked) ? 0 : 1;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

}  // namespace
}  // namespace tendon::test
