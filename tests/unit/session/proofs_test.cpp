// SPDX-License-Identifier: Apache-2.0
#include "session/proofs.hpp"

#include <gtest/gtest.h>

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

TEST(Proofs, NeverSatisfyAProfileThatIsUnknown) {
  const auto later = static_cast<Profile>(4);
  EXPECT_FALSE(Proofs{}.satisfy(later));
  EXPECT_FALSE(Proofs{.host = Proofs::Host::same_user}.satisfy(later));
}

}  // namespace
}  // namespace tendon::test
