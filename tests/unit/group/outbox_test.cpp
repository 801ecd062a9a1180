// SPDX-License-Identifier: Apache-2.0
// The order of messages, the messages that wait for the window, and the end of messages that are
// not sent.
#include "group/membership/outbox.hpp"

#include <gmock/gmock.h>

#include <memory>

#include "group/membership/messages_window.hpp"
#include "support/peerless_link.hpp"

namespace tendon::detail {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kWindowBytes = 1 << 20;

class Outboxes : public testing::Test {
 protected:
  std::shared_ptr<Outbound> add(EnvelopeKind kind, std::uint64_t size_bytes = 0,
                                std::uint64_t group = 1) {
    auto outbound = std::make_shared<Outbound>();
    outbound->envelope = {.kind = kind, .group = group};
    outbound->op.descriptor.sequence = ++added_;
    outbound->op.descriptor.payload_bytes = size_bytes;
    outbox_.add(outbound);
    return outbound;
  }
  std::shared_ptr<Outbound> message(std::uint64_t size_bytes, std::uint64_t group = 1) {
    return add(EnvelopeKind::message, size_bytes, group);
  }
  std::shared_ptr<Outbound> step() { return add(EnvelopeKind::collective); }
  /// The peer has taken this much in all.
  bool credit(std::uint64_t messages, std::uint64_t bytes) {
    return outbox_.on_credit(
        {.kind = MessageKind::credit, .sequence = messages, .payload_bytes = bytes});
  }

  test::PeerlessLink link_{kWindowBytes};
  Outbox outbox_{link_};
  std::uint64_t added_ = 0;
  const Error why_{ErrorCode::peer_lost, "test", "gone"};
};

TEST_F(Outboxes, StepsGoBeforeMessages) {
  for (const bool is_step : {false, true, false, true}) (void)(is_step ? step() : message(1));
  EXPECT_EQ(outbox_.count(), 4u);
  EXPECT_FALSE(outbox_.advance()) << "nothing is left";
  EXPECT_THAT(link_.sent, ElementsAre(2, 4, 1, 3));
  EXPECT_EQ(outbox_.count(), 0u);
}

TEST_F(Outboxes, WhatWasBegunGoesOnFirst) {
  link_.full = true;
  const auto begun = message(1);
  EXPECT_TRUE(outbox_.advance());
  (void)step();
  link_.full = false;
  EXPECT_FALSE(outbox_.advance());
  EXPECT_THAT(link_.sent, ElementsAre(1, 2));
  EXPECT_TRUE(begun->handed_over);
}

TEST_F(Outboxes, MessagesWaitForTheWindowAndStepsDoNot) {
  (void)message(kWindowBytes);
  const auto waiting = message(1);
  (void)step();
  EXPECT_TRUE(outbox_.advance());
  EXPECT_THAT(link_.sent, ElementsAre(3, 1));
  EXPECT_FALSE(waiting->done);
  ASSERT_TRUE(credit(1, message_cost_bytes(kWindowBytes)));
  EXPECT_FALSE(outbox_.advance());
  EXPECT_TRUE(waiting->done);
  EXPECT_TRUE(waiting->handed_over);
  EXPECT_FALSE(credit(3, message_cost_bytes(kWindowBytes) + 2 * message_cost_bytes(1)))
      << "more than was sent";
}

TEST_F(Outboxes, WhatIsTakenBackLeavesTheWindowOpen) {
  link_.full = true;
  const auto begun = message(kWindowBytes);
  const auto waiting = message(1);
  EXPECT_TRUE(outbox_.advance());
  for (const auto& each : {begun, waiting}) {
    EXPECT_TRUE(outbox_.withdraw(*each));
    EXPECT_TRUE(each->done);
    EXPECT_FALSE(each->handed_over);
    EXPECT_EQ(each->failure->code, ErrorCode::cancelled);
  }
  EXPECT_EQ(outbox_.count(), 0u);
  link_.full = false;
  (void)message(1);
  EXPECT_FALSE(outbox_.advance());
  EXPECT_THAT(link_.sent, ElementsAre(3));
}

TEST_F(Outboxes, WhatTheLinkHasFinishedIsNotTakenBack) {
  link_.full = link_.too_late = true;
  const auto begun = message(1);
  EXPECT_TRUE(outbox_.advance());
  EXPECT_FALSE(outbox_.withdraw(*begun));
  EXPECT_TRUE(begun->handed_over);
  EXPECT_FALSE(begun->failure);
  EXPECT_FALSE(outbox_.withdraw(*begun));
}

TEST_F(Outboxes, AMessageThatTheLinkRefusesHearsWhy) {
  link_.failure = why_;
  const auto refused = step();
  EXPECT_FALSE(outbox_.advance());
  EXPECT_TRUE(refused->done);
  EXPECT_FALSE(refused->handed_over);
  EXPECT_EQ(refused->failure->code, ErrorCode::peer_lost);
}

TEST_F(Outboxes, OnlyWhatTheWindowHoldsOfTheGroupIsTakenBack) {
  link_.full = true;
  (void)message(kWindowBytes / 2);  // the message has begun
  EXPECT_TRUE(outbox_.advance());
  const auto fits = message(kWindowBytes / 2);
  const auto of_another = message(1, 2);
  const auto held = message(1);
  EXPECT_EQ(outbox_.take_back_held(1, why_), 1u);
  EXPECT_TRUE(held->done);
  EXPECT_EQ(held->failure->code, ErrorCode::peer_lost);
  for (const auto& each : {fits, of_another}) EXPECT_FALSE(each->done);
  EXPECT_EQ(outbox_.count(), 3u);
}

TEST_F(Outboxes, AllEndsWithTheChannel) {
  link_.full = true;
  const auto begun = step();
  EXPECT_TRUE(outbox_.advance());
  const auto queued = step();
  const auto waiting = message(1);
  EXPECT_FALSE(outbox_.end_error());
  outbox_.end(why_);
  EXPECT_EQ(outbox_.end_error()->code, ErrorCode::peer_lost);
  const auto late = message(1);
  for (const auto& each : {begun, queued, waiting, late}) {
    EXPECT_TRUE(each->done);
    EXPECT_FALSE(each->handed_over);
    EXPECT_EQ(each->failure->code, ErrorCode::peer_lost);
  }
  EXPECT_EQ(outbox_.count(), 0u);
  EXPECT_THAT(link_.sent, IsEmpty());
}

}  // namespace
}  // namespace tendon::detail
