// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/bulk_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace tendon::test {
namespace {

using detail::BulkQueue;
using detail::BulkSend;
using detail::SendOp;

constexpr std::uint64_t kCapBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kHalfBytes = kCapBytes / 2;

class BulkQueueTest : public testing::Test {
 protected:
  SendOp& op(std::size_t index, std::uint32_t pipe, std::uint64_t body_bytes) {
    ops_[index].descriptor.pipe = pipe;
    ops_[index].descriptor.payload_bytes = body_bytes;
    return ops_[index];
  }
  // Begins its first frame and marks it as written to a socket.
  static void write_frame(BulkSend& sending) {
    const std::uint64_t frame_bytes = sending.cut.length_at(sending.begun_bytes);
    sending.begun_bytes += frame_bytes;
    sending.written_bytes += frame_bytes;
  }

  std::array<SendOp, 4> ops_;
  BulkQueue queue_{kCapBytes};
};

TEST_F(BulkQueueTest, NoneOvertakesTheFirstThatHasNoRoom) {
  queue_.add(op(0, 1, kHalfBytes));
  queue_.add(op(1, 1, kCapBytes));
  queue_.add(op(2, 2, kHalfBytes));
  BulkSend* const first = queue_.admit();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->op, &ops_[0]);
  queue_.stage(*first);
  EXPECT_EQ(queue_.admit(), nullptr);
  EXPECT_EQ(queue_.untaken_bytes(), kHalfBytes);
  ASSERT_TRUE(queue_.on_taken(kHalfBytes));
  const BulkSend* const second = queue_.admit();
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->op, &ops_[1]);
}

TEST_F(BulkQueueTest, APeerThatTookMoreThanWasAnnouncedIsRefused) {
  queue_.add(op(0, 1, kHalfBytes));
  EXPECT_FALSE(queue_.on_taken(1));
  BulkSend* const admitted = queue_.admit();
  ASSERT_NE(admitted, nullptr);
  EXPECT_FALSE(queue_.on_taken(kHalfBytes)) << "the peer does not know of it";
  queue_.stage(*admitted);
  EXPECT_FALSE(queue_.on_taken(kHalfBytes + 1));
  EXPECT_TRUE(queue_.on_taken(kHalfBytes));
}

TEST_F(BulkQueueTest, AnOldCountOfWhatWasTakenChangesNothing) {
  queue_.add(op(0, 1, kHalfBytes));
  queue_.stage(*queue_.admit());
  ASSERT_TRUE(queue_.on_taken(kHalfBytes));
  EXPECT_TRUE(queue_.on_taken(1));
  EXPECT_EQ(queue_.untaken_bytes(), 0u);
}

TEST_F(BulkQueueTest, OneThatThePeerHasNotHeardOfGivesItsRoomBack) {
  queue_.add(op(0, 1, kCapBytes));
  ASSERT_NE(queue_.admit(), nullptr);
  queue_.remove(ops_[0]);
  EXPECT_EQ(queue_.untaken_bytes(), 0u);
  EXPECT_EQ(queue_.waiting_descriptors(), 0u);
}

TEST_F(BulkQueueTest, OneThatWasAnnouncedKeepsItsRoomUntilThePeerHasTakenIt) {
  queue_.add(op(0, 1, kCapBytes));
  queue_.stage(*queue_.admit());
  queue_.remove(ops_[0]);
  EXPECT_EQ(queue_.untaken_bytes(), kCapBytes);
  queue_.add(op(1, 1, kCapBytes));
  EXPECT_EQ(queue_.admit(), nullptr);
}

TEST_F(BulkQueueTest, APipeWhoseDescriptorsAreOutHoldsNoneBack) {
  queue_.add(op(0, 1, kHalfBytes));
  EXPECT_TRUE(queue_.holds_descriptor_of(1));
  EXPECT_FALSE(queue_.holds_descriptor_of(2));
  BulkSend* const admitted = queue_.admit();
  EXPECT_TRUE(queue_.holds_descriptor_of(1));
  queue_.stage(*admitted);
  EXPECT_FALSE(queue_.holds_descriptor_of(1));
}

TEST_F(BulkQueueTest, TheTailWaitsForTheFramesBeforeIt) {
  queue_.add(op(0, 1, kHalfBytes));
  EXPECT_FALSE(queue_.has_frame());
  BulkSend& sending = *queue_.admit();
  ASSERT_TRUE(queue_.has_frame());
  while (sending.begun_bytes < sending.cut.tail_offset()) write_frame(sending);
  EXPECT_TRUE(queue_.has_frame());
  --sending.written_bytes;  // as if a socket had not taken the end of the last one
  EXPECT_FALSE(queue_.has_frame());
}

// Whichever send leaves the queue, the next in turn keeps its turn.
TEST_F(BulkQueueTest, ARemovedOneTakesNoTurnAway) {
  for (std::size_t index = 0; index < ops_.size(); ++index) queue_.add(op(index, 1, 16384));
  queue_.took_turn(0);
  queue_.took_turn(0);
  EXPECT_EQ(queue_.in_turn(0).op, &ops_[2]);
  queue_.remove(ops_[0]);
  EXPECT_EQ(queue_.in_turn(0).op, &ops_[2]);
  queue_.remove(ops_[3]);
  EXPECT_EQ(queue_.in_turn(0).op, &ops_[2]);
  queue_.remove(ops_[2]);
  EXPECT_EQ(queue_.in_turn(0).op, &ops_[1]);
}

}  // namespace
}  // namespace tendon::test
