// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/messages_in.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/expect.hpp"
#include "support/shm_sides.hpp"

namespace tendon::detail {
namespace {

class MessagesInTest : public testing::Test {
 protected:
  static Descriptor inline_message(std::uint64_t offset, std::uint64_t payload_bytes) {
    return {.kind = MessageKind::data,
            .flags = Descriptor::kInline,
            .pipe = 1,
            .payload_bytes = payload_bytes,
            .segment_or_inline_bytes = static_cast<std::uint32_t>(payload_bytes),
            .offset = offset};
  }
  void publish(const Descriptor& descriptor) {
    ASSERT_TRUE(peer_.stage(descriptor));
    peer_.publish();
  }

  test::ShmSides sides_;
  RingProducer<Descriptor> peer_{sides_.sender.mine().messages,
                                 sides_.sender.mine().message_entries};
  MessagesIn in_{sides_.receiver};
};

TEST_F(MessagesInTest, WhatIsNotReleasedComesAgain) {
  EXPECT_FALSE(in_.has_entry());
  publish({.kind = MessageKind::data, .pipe = 1, .sequence = 5});
  ASSERT_TRUE(in_.has_entry());
  Descriptor descriptor;
  ASSERT_TRUE(in_.pop(descriptor));
  in_.unpop();
  ASSERT_TRUE(in_.pop(descriptor));
  EXPECT_EQ(descriptor.sequence, 5u);
  EXPECT_EQ(peer_.consumed(), 0u);
  in_.release();
  EXPECT_EQ(peer_.consumed(), 1u);
  EXPECT_FALSE(in_.has_entry());
  EXPECT_FALSE(in_.pop(descriptor));
  EXPECT_FALSE(in_.corrupt());
}

TEST_F(MessagesInTest, BodyIsCopiedOutOfTheArena) {
  auto& arena = sides_.sender.mine().arena;
  for (std::size_t i = 0; i < 100; ++i) arena[arena.size() - 100 + i] = static_cast<std::byte>(i);
  const auto body = in_.body_of(inline_message(arena.size() - 100, 100));
  ASSERT_TRUE(test::succeeds(body));
  EXPECT_EQ(body->place, IncomingBody::Place::private_copy);
  std::fill(arena.begin(), arena.end(), std::byte{0xff});
  EXPECT_EQ(body->data[0], std::byte{0});
  EXPECT_EQ(body->data[99], std::byte{99});
}

TEST_F(MessagesInTest, NoBodyLiesOutsideTheArena) {
  for (const std::uint64_t offset :
       {ControlBlock::kArenaBytes - 99, ControlBlock::kArenaBytes, ~std::uint64_t{0}}) {
    EXPECT_TRUE(test::fails_with(in_.body_of(inline_message(offset, 100)),
                                 ErrorCode::protocol_violation, "outside the arena"));
  }
}

TEST_F(MessagesInTest, SleeperIsWokenOncePerStepOfRoom) {
  constexpr std::uint64_t kEntryBytes = ControlBlock::kArenaBytes / ControlBlock::kMessageCount;
  constexpr std::uint64_t kStepEntries = MessagesIn::kRoomStep / kEntryBytes;
  sides_.sender_sleep.announce(SleepWord<>::kForMessages);
  in_.wake_for_room(kStepEntries - 1);
  EXPECT_EQ(sides_.receiver.doorbell_count(), 0u);
  in_.wake_for_room(1);
  EXPECT_EQ(sides_.receiver.doorbell_count(), 1u);
  in_.wake_for_room(kStepEntries - 1);
  EXPECT_EQ(sides_.receiver.doorbell_count(), 1u);

  // Bodies make room too.
  ASSERT_TRUE(test::succeeds(in_.body_of(inline_message(0, kEntryBytes))));
  in_.wake_for_room(0);
  EXPECT_EQ(sides_.receiver.doorbell_count(), 2u);

  sides_.sender_sleep.awake();
  in_.wake_for_room(kStepEntries);
  EXPECT_EQ(sides_.receiver.doorbell_count(), 2u) << "nobody sleeps";
}

TEST_F(MessagesInTest, CounterBeyondTheRingIsCorrupt) {
  sides_.sender.mine().messages.tail.store(ControlBlock::kMessageCount + 1);
  Descriptor descriptor;
  EXPECT_FALSE(in_.pop(descriptor));
  EXPECT_TRUE(in_.corrupt());
}

TEST_F(MessagesInTest, CountsWhatIsTakenIn) {
  in_.note(inline_message(0, 100));
  in_.note(inline_message(0, 28));
  EXPECT_EQ(in_.message_count(), 2u);
  EXPECT_EQ(in_.body_bytes(), 128u);
}

}  // namespace
}  // namespace tendon::detail
