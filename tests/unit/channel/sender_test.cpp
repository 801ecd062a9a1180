// SPDX-License-Identifier: Apache-2.0
#include "channel/sender.hpp"

#include <gtest/gtest.h>

namespace tendon::test {
namespace {

using detail::ChannelSender;
using detail::Descriptor;
using detail::MessageKind;

std::shared_ptr<const Schema> schema(std::string_view name) {
  return Schema::make({{std::string(name), DType::u8, {1}}}).value();
}

struct Sender {
  explicit Sender(detail::Window said = {}) : window(said, 1 << 20) {}
  detail::SendWindow window;
  ChannelSender sender{7, window, 1 << 20};
};

TEST(ChannelSender, AMessageThatWasBegunKeepsItsNumberUntilItIsSent) {
  Sender s;
  Descriptor first{.kind = MessageKind::data, .payload_bytes = 10};
  ASSERT_TRUE(s.sender.begin(first));
  EXPECT_EQ(first.sequence, 1u);
  ASSERT_TRUE(s.sender.begin(first)) << "once more";
  EXPECT_EQ(first.sequence, 1u);
  EXPECT_EQ(s.sender.last_sequence(), 0u);
  s.sender.sent(first);
  EXPECT_EQ(s.sender.last_sequence(), 1u);
  EXPECT_EQ(s.window.untaken_bytes(), 10u);
  Descriptor second{.kind = MessageKind::data};
  ASSERT_TRUE(s.sender.begin(second));
  EXPECT_EQ(second.sequence, 2u);
}

TEST(ChannelSender, AWithdrawnMessageMayKeepItsNumberForItself) {
  Sender s;
  Descriptor withdrawn{.kind = MessageKind::data};
  ASSERT_TRUE(s.sender.begin(withdrawn));
  EXPECT_EQ(s.sender.use_sequence(), 1u);
  Descriptor next{.kind = MessageKind::data};
  ASSERT_TRUE(s.sender.begin(next));
  EXPECT_EQ(next.sequence, 2u);
  EXPECT_EQ(s.window.untaken_messages(), 0u);
}

TEST(ChannelSender, AClosedWindowGivesNoNumberAndOneThatHasItGoesOn) {
  Sender s(detail::Window::said(1, 100));
  Descriptor first{.kind = MessageKind::data};
  ASSERT_TRUE(s.sender.begin(first));
  s.sender.sent(first);
  Descriptor second{.kind = MessageKind::data};
  EXPECT_FALSE(s.sender.begin(second));
  EXPECT_EQ(second.sequence, 0u);
  second.sequence = 2;
  EXPECT_TRUE(s.sender.begin(second));
}

TEST(ChannelSender, ASchemaIsAnnouncedOnceUnderBothNumbers) {
  Sender s;
  (void)s.sender.use_sequence();
  const auto known = schema("a");
  EXPECT_EQ(s.sender.number_of(known), 0u);
  const Descriptor announcement = s.sender.announcement(*known);
  EXPECT_EQ(announcement.kind, MessageKind::schema);
  EXPECT_EQ(announcement.pipe, 7u);
  EXPECT_EQ(announcement.schema, 1u);
  EXPECT_EQ(announcement.sequence, 2u);
  EXPECT_EQ(announcement.payload_bytes, known->encoding().size());
  EXPECT_EQ(s.sender.number_of(known), 0u) << "it has not gone yet";
  s.sender.announced(1, known);
  EXPECT_EQ(s.sender.number_of(known), 1u);
  EXPECT_EQ(s.sender.number_of(schema("a")), 1u) << "an equal one";
  EXPECT_EQ(s.sender.announcement(*schema("b")).schema, 2u);
  EXPECT_EQ(s.sender.last_sequence(), 2u);
}

TEST(ChannelSender, APlacementIsAnnouncedBesideItsSchema) {
  Sender s;
  const auto known = schema("a");
  const auto placement = std::make_shared<detail::Placement>();
  placement->leaves = {1};
  const Descriptor plain = s.sender.announcement(*known);
  EXPECT_EQ(plain.values_bytes, 0u);
  s.sender.announced(plain.schema, known);
  EXPECT_EQ(s.sender.number_of(known, placement.get()), 0u);
  const Descriptor placed = s.sender.announcement(*known, placement.get());
  EXPECT_EQ(placed.schema, 2u);
  EXPECT_EQ(placed.values_bytes, 1u);
  EXPECT_EQ(placed.payload_bytes, known->encoding().size());
  EXPECT_EQ(check_descriptor(placed, 1 << 20), "");
  s.sender.announced(placed.schema, known, placement);
  EXPECT_EQ(s.sender.number_of(known), 1u);
  EXPECT_EQ(s.sender.number_of(known, placement.get()), 2u);
}

}  // namespace
}  // namespace tendon::test
