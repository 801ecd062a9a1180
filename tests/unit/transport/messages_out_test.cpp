// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/messages_out.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "support/expect.hpp"
#include "support/shm_sides.hpp"
#include "transport/shm/messages_in.hpp"

namespace tendon::detail {
namespace {

constexpr std::uint64_t kReserved = 64;  // places of the ring that messages leave free

class MessagesOutTest : public testing::Test {
 protected:
  static Descriptor numbered(std::uint64_t number) {
    return {.kind = MessageKind::data, .pipe = 1, .sequence = number};
  }
  // A body that depends on its number.
  static std::vector<std::byte> body_of(std::uint64_t number, std::size_t size_bytes) {
    std::vector<std::byte> body(size_bytes);
    for (std::size_t i = 0; i < size_bytes; ++i) body[i] = static_cast<std::byte>(number * 31 + i);
    return body;
  }
  Result<Sent> place_small(std::uint64_t number, std::size_t size_bytes,
                           RingShare share = RingShare::whole) {
    const std::vector<std::byte> body = body_of(number, size_bytes);
    const BodyPart part{0, body, nullptr, size_bytes};
    SendOp op;
    op.descriptor = numbered(number);
    op.descriptor.payload_bytes = size_bytes;
    op.parts = {&part, 1};
    op.share = share;
    return out_.place_small(op);
  }
  // Places messages until there is no room. Returns how many.
  std::uint64_t fill(RingShare share = RingShare::whole) {
    std::uint64_t count = 0;
    for (;; ++count) {
      const auto placed = out_.place(numbered(count), share);
      EXPECT_TRUE(test::succeeds(placed));
      if (!placed || *placed == Sent::later) break;
    }
    out_.show();
    return count;
  }
  std::optional<Descriptor> take() {
    Descriptor descriptor;
    if (!in_.pop(descriptor)) return std::nullopt;
    in_.release();
    return descriptor;
  }

  test::ShmSides sides_;
  MessagesOut out_{sides_.sender};
  MessagesIn in_{sides_.receiver};
};

TEST_F(MessagesOutTest, WhatIsPlacedIsSeenWhenItIsShown) {
  ASSERT_TRUE(test::succeeds(out_.place(numbered(7), RingShare::whole)));
  EXPECT_FALSE(in_.has_entry());
  out_.show();
  ASSERT_TRUE(in_.has_entry());
  EXPECT_EQ(take()->sequence, 7u);
  EXPECT_EQ(out_.message_count(), 1u);
}

TEST_F(MessagesOutTest, PeerIsRungOnlyWhileItSleepsForMessages) {
  out_.show_and_wake();
  EXPECT_EQ(sides_.sender.doorbell_count(), 0u);
  sides_.receiver_sleep.announce(SleepWord<>::kForReturns);
  out_.show_and_wake();
  EXPECT_EQ(sides_.sender.doorbell_count(), 0u);
  sides_.receiver_sleep.announce(SleepWord<>::kForMessages | SleepWord<>::kForReturns);
  out_.show();
  EXPECT_EQ(sides_.sender.doorbell_count(), 0u) << "that is the caller's, behind its barrier";
  out_.show_and_wake();
  EXPECT_EQ(sides_.sender.doorbell_count(), 1u);
}

TEST_F(MessagesOutTest, BodiesInTheArenaAreWholeUntilTheyAreTaken) {
  const auto size_of = [](std::uint64_t number) { return 1 + number * 977 % 8192; };
  std::uint64_t placed = 0;
  std::uint64_t taken = 0;
  int full = 0;
  while (taken < 2000) {
    const auto sent = place_small(placed, size_of(placed));
    ASSERT_TRUE(test::succeeds(sent));
    if (*sent == Sent::done) {
      ++placed;
      continue;
    }
    ++full;
    out_.show();
    for (std::uint64_t some = 0; some < 1 + placed % 40; ++some) {
      const auto descriptor = take();
      if (!descriptor) break;
      ASSERT_EQ(descriptor->sequence, taken);
      ASSERT_TRUE(descriptor->is_inline());
      const auto body = in_.body_of(*descriptor);
      ASSERT_TRUE(test::succeeds(body));
      const auto expected = body_of(taken, size_of(taken));
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), body->data)) << "message " << taken;
      ++taken;
    }
  }
  EXPECT_GT(full, 20) << "the arena came round";
}

TEST_F(MessagesOutTest, NormalSamplesLeaveRoomForThoseOfControl) {
  constexpr std::uint64_t kForControl = 128;  // places of the ring
  const std::uint64_t normal = fill(RingShare::less_control);
  EXPECT_EQ(normal, ControlBlock::kMessageCount - kForControl - kReserved);
  EXPECT_EQ(fill(), kForControl);
  EXPECT_EQ(fill(RingShare::less_control), 0u);
}

TEST_F(MessagesOutTest, NormalSamplesLeaveRoomInTheArenaToo) {
  constexpr std::size_t kLargest = 8192;
  const auto fill_arena = [&](RingShare share) {
    std::uint64_t count = 0;
    while (*place_small(count, kLargest, share) == Sent::done) ++count;
    return count;
  };
  EXPECT_EQ(fill_arena(RingShare::less_control), 26u);
  EXPECT_EQ(fill_arena(RingShare::whole), 4u);
}

TEST_F(MessagesOutTest, WordsOfControlFindRoomWhereMessagesFindNone) {
  const std::uint64_t message_count = fill();
  ASSERT_EQ(message_count, ControlBlock::kMessageCount - kReserved);
  for (std::uint64_t word = 0; word < kReserved; ++word) out_.post(numbered(10'000 + word), {});
  EXPECT_EQ(out_.posted_bytes(), 0u);
  out_.post(numbered(20'000), {});
  EXPECT_NE(out_.posted_bytes(), 0u) << "the ring is full";

  for (std::uint64_t message = 0; message < message_count; ++message)
    EXPECT_EQ(take()->sequence, message);
  for (std::uint64_t word = 0; word < kReserved; ++word) EXPECT_EQ(take()->sequence, 10'000 + word);
  EXPECT_FALSE(in_.has_entry());
}

TEST_F(MessagesOutTest, WordsOfControlFindRoomInTheArenaToo) {
  std::uint64_t count = 0;
  while (*place_small(count, 8192) == Sent::done) ++count;
  EXPECT_EQ(count, (ControlBlock::kArenaBytes - kReserved * 256) / 8192);
  Descriptor word = numbered(count);
  word.payload_bytes = 256;
  out_.post(word, body_of(count, 256));
  EXPECT_EQ(out_.posted_bytes(), 0u);
}

TEST_F(MessagesOutTest, WhatWasPostedGoesFirstAndInOrder) {
  fill();
  for (std::uint64_t word = 0; word <= kReserved; ++word) out_.post(numbered(10'000 + word), {});
  const std::size_t waiting_bytes = out_.posted_bytes();
  out_.post(numbered(20'000), {});
  EXPECT_GT(out_.posted_bytes(), waiting_bytes);
  EXPECT_FALSE(out_.flush());
  std::uint64_t last = 0;
  for (std::uint64_t place = 0; place < 2 * kReserved; ++place) last = take()->sequence;
  out_.post(numbered(20'001), {});
  EXPECT_EQ(out_.posted_bytes(), 0u);
  EXPECT_TRUE(out_.flush());
  while (const auto descriptor = take()) {
    EXPECT_GT(descriptor->sequence, last);
    last = descriptor->sequence;
  }
  EXPECT_EQ(last, 20'001u);
}

TEST_F(MessagesOutTest, RoomIsToldToThoseWhoFoundNoneAndOnce) {
  ASSERT_EQ(*out_.place(numbered(0), RingShare::whole), Sent::done);
  out_.show();
  (void)take();
  EXPECT_FALSE(out_.room_came()) << "nobody waits for it";
  fill();
  EXPECT_FALSE(out_.room_came());
  EXPECT_FALSE(out_.use_up_room());
  (void)take();
  EXPECT_TRUE(out_.room_came());
  EXPECT_TRUE(out_.use_up_room());
  EXPECT_FALSE(out_.room_came());
  EXPECT_FALSE(out_.use_up_room());
  EXPECT_EQ(*out_.place(numbered(0), RingShare::whole), Sent::done);
}

TEST_F(MessagesOutTest, NothingIsPlacedBehindACounterThatMakesNoSense) {
  fill();
  sides_.receiver.theirs().messages.head.store(1u << 20);
  EXPECT_EQ(*out_.place(numbered(0), RingShare::whole), Sent::later);
  EXPECT_TRUE(out_.broken());
  EXPECT_TRUE(
      test::fails_with(out_.place(numbered(0), RingShare::whole), ErrorCode::protocol_violation));
  out_.post(numbered(0), {});
  EXPECT_EQ(out_.posted_bytes(), 0u) << "it waits for nothing that comes";
}

TEST_F(MessagesOutTest, NothingIsPlacedOnceItIsBrokenOff) {
  out_.break_off();
  EXPECT_TRUE(
      test::fails_with(out_.place(numbered(0), RingShare::whole), ErrorCode::protocol_violation));
  EXPECT_TRUE(test::fails_with(place_small(0, 8), ErrorCode::protocol_violation));
}

}  // namespace
}  // namespace tendon::detail
