// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <tendon/session/identity.hpp>
#include <tendon/session/profile.hpp>
#include <unordered_set>

namespace {

using tendon::ContextId;
using tendon::PeerIdentity;
using tendon::Profile;

TEST(ContextId, ReadsAsHexAndOrdersByBytes) {
  ContextId id;
  EXPECT_TRUE(id.is_none());
  id.bytes[0] = std::byte{0xAB};
  id.bytes[15] = std::byte{0x01};
  EXPECT_FALSE(id.is_none());
  EXPECT_EQ(id.to_string(), "ab000000000000000000000000000001");
  ContextId greater = id;
  greater.bytes[15] = std::byte{0x02};
  EXPECT_LT(id, greater);
  EXPECT_NE(id, greater);
  const std::unordered_set<ContextId> set{id, greater, id};
  EXPECT_EQ(set.size(), 2u);
}

TEST(PeerIdentity, ReadsAsAPersonWouldSayIt) {
  PeerIdentity peer;
  peer.host = "a";
  peer.pid = 4711;
  EXPECT_EQ(peer.to_string(), "host a, pid 4711");
  peer.name = "learner";
  EXPECT_EQ(peer.to_string(), "learner (host a, pid 4711)");
  peer.identity = "key:fleet";
  EXPECT_EQ(peer.to_string(), "learner (key:fleet, host a, pid 4711)");
  peer.name = "";
  EXPECT_EQ(peer.to_string(), "key:fleet, host a, pid 4711");
}

}  // namespace
