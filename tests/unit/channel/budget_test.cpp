// SPDX-License-Identifier: Apache-2.0
// The data that channels keep from a peer has one limit for the link, whatever kind it is.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "channel/receiver.hpp"
#include "support/expect.hpp"
#include "support/peerless_link.hpp"

namespace tendon::test {
namespace {

using detail::ChannelReceiver;
using detail::HeldBytes;
using detail::Incoming;
using detail::MessageKind;

/// A channel that receives schemas.
struct OfSchemas {
  OfSchemas(PeerlessLink& link, std::uint32_t pipe)
      : receiver(pipe, {}, link.cap_bytes(), link.budget()) {}
  [[nodiscard]] Result<void> announce(int leaves) {
    std::vector<LeafSpec> all;
    for (int leaf = 0; leaf < leaves; ++leaf) all.push_back({std::to_string(leaf), DType::u8, {1}});
    const auto schema = Schema::make(all).value();
    std::vector<std::byte> bytes(schema->encoding().begin(), schema->encoding().end());
    Incoming incoming;
    incoming.descriptor = {
        .kind = MessageKind::schema, .schema = ++number, .payload_bytes = bytes.size()};
    incoming.body.data = bytes.data();
    return receiver.read_schema(incoming);
  }
  ChannelReceiver receiver;
  std::uint32_t number = 0;
};

TEST(LinkBudget, ChannelsOfOneLinkShareIt) {
  PeerlessLink link;
  OfSchemas first(link, 1);
  OfSchemas second(link, 2);
  ASSERT_TRUE(succeeds(first.announce(100)));
  const std::uint64_t one = link.budget().bytes();
  ASSERT_NE(one, 0u);
  ASSERT_TRUE(succeeds(second.announce(100)));
  EXPECT_EQ(link.budget().bytes(), 2 * one);

  // A third channel keeps another kind of data: all that is left, except one byte.
  EXPECT_FALSE(link.budget().ask(link.cap_bytes() - 2 * one + 1).has_value());
  auto words = link.budget().ask(link.cap_bytes() - 2 * one - 1);
  ASSERT_TRUE(words.has_value());
  EXPECT_TRUE(fails_with(second.announce(1), ErrorCode::limit_exceeded, "link_cap_bytes"));
  EXPECT_EQ(link.budget().bytes(), link.cap_bytes() - 1);

  first.receiver.forget_schemas();
  EXPECT_TRUE(succeeds(second.announce(1))) << "what one gives back another may have";
  words.reset();
  second.receiver.forget_schemas();
  EXPECT_EQ(link.budget().bytes(), 0u);
}

TEST(LinkBudget, EachLinkHasItsOwn) {
  PeerlessLink full;
  PeerlessLink other;
  const auto all = full.budget().ask(full.cap_bytes());
  ASSERT_TRUE(all.has_value());
  EXPECT_TRUE(fails_with(OfSchemas(full, 1).announce(1), ErrorCode::limit_exceeded));
  EXPECT_TRUE(succeeds(OfSchemas(other, 1).announce(1)));
}

}  // namespace
}  // namespace tendon::test
