// SPDX-License-Identifier: Apache-2.0
// The limits of what a peer over sockets can make this process hold: counters, at the limit and one
// beyond.
#include <tendon/session/limits.hpp>

#include "raw_peer.hpp"
#include "transport/private_body.hpp"
#include "transport/stream/link_window.hpp"

namespace tendon::test {
namespace {

constexpr std::uint64_t kMiB = 1ull << 20;
constexpr std::uint64_t kCap = RawPeer::kCapBytes;

std::vector<std::byte> zeros(std::size_t size_bytes) { return std::vector<std::byte>(size_bytes); }

// Announces a body and sends all of its frames.
bool send_body(RawPeer& peer, const Descriptor& message) {
  if (!peer.control(message)) return false;
  const FrameCut cut{message.body_bytes()};
  for (std::uint64_t at = 0; at < cut.body_bytes; at += cut.length_at(at))
    if (!peer.frame(frame_of(message, at), zeros(cut.length_at(at)))) return false;
  return true;
}

Descriptor small_message(std::uint32_t pipe, std::uint64_t sequence, std::uint32_t size_bytes) {
  Descriptor descriptor = bulk_message(pipe, sequence, size_bytes);
  descriptor.flags = Descriptor::kInline;
  descriptor.segment_or_inline_bytes = size_bytes;
  return descriptor;
}

TEST(LinkWindow, AnHonestSenderNeverExceedsWhatTheReceiverTakes) {
  for (const std::uint64_t cap : {std::uint64_t{1}, kMiB, 64 * kMiB, kMiB << 20}) {
    const std::uint64_t credit = link_credit_bytes(cap);
    EXPECT_TRUE(fits_link_window(0, cap, cap)) << "the largest message, when nothing is open";
    EXPECT_TRUE(fits_link_window(credit - 1, cap, cap)) << "and all was taken, but not told";
    EXPECT_LE(credit - 1 + cap, link_window_bytes(cap));
    EXPECT_FALSE(fits_link_window(credit, cap, cap));
    EXPECT_TRUE(fits_link_window(credit, cap - credit, cap));
  }
}

TEST(TcpHeld, BodiesOfAllPipesTogetherStayWithinTheCap) {
  RawPeer peer;
  for (std::uint32_t pipe = 1; pipe <= 3; ++pipe) peer.end.attach(pipe);
  ASSERT_TRUE(send_body(peer, bulk_message(1, 1, kCap / 2)));
  ASSERT_TRUE(send_body(peer, bulk_message(2, 1, kCap / 2)));
  ASSERT_TRUE(send_body(peer, bulk_message(2, 2, link_credit_bytes(kCap))));
  peer.settle();
  EXPECT_EQ(peer.end.link->stats().held_bytes, link_window_bytes(kCap));
  EXPECT_FALSE(peer.error().has_value());
  peer.control(bulk_message(3, 1, kMaxInlineBytes + 1));
  peer.settle();
  expect_violation(peer.end, "beyond the window of", "mallory");
  EXPECT_EQ(peer.end.link->stats().most_held_bytes, link_window_bytes(kCap));
}

TEST(TcpHeld, SchemasCountAsWell) {
  RawPeer peer;
  peer.end.attach(1);
  Descriptor schema = bulk_message(1, 0, kMaxSchemaBytes);
  schema.kind = MessageKind::schema;
  while (!peer.end.link->ended() && schema.sequence < 20) {
    ++schema.sequence;
    peer.control(schema);
    peer.settle();
  }
  expect_violation(peer.end, "beyond the window of", "mallory");
  EXPECT_LE(peer.end.link->stats().most_held_bytes, link_window_bytes(kCap));
}

TEST(TcpHeld, WhatIsTakenMakesRoomAndIsTold) {
  RawPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  std::uint64_t sent_bytes = 0;
  for (std::uint64_t sequence = 1; sent_bytes < 3 * kCap; ++sequence) {
    ASSERT_TRUE(send_body(peer, bulk_message(1, sequence, 5 * kMiB)));
    peer.settle();
    ASSERT_EQ(sink.complete_count(), 1u);
    sink.drop_bodies();
    sent_bytes += 5 * kMiB;
  }
  EXPECT_FALSE(peer.error().has_value());
  EXPECT_EQ(peer.end.link->stats().held_bytes, 0u);
  std::uint64_t told_bytes = 0;
  for (const Descriptor& heard : peer.heard()) {
    if (heard.kind != MessageKind::credit) continue;
    EXPECT_EQ(heard.pipe, 0u);
    EXPECT_GT(heard.payload_bytes, told_bytes);
    told_bytes = heard.payload_bytes;
  }
  EXPECT_LT(sent_bytes - told_bytes, link_credit_bytes(kCap)) << "less than this may be untold";
}

TEST(TcpHeld, ABodyForNobodyIsTakenAtOnce) {
  RawPeer peer;
  for (std::uint64_t sequence = 1; sequence <= 5; ++sequence)
    ASSERT_TRUE(send_body(peer, bulk_message(7, sequence, kCap / 2)));
  peer.settle();
  EXPECT_FALSE(peer.error().has_value());
  EXPECT_EQ(peer.end.link->stats().held_bytes, 0u);
}

TEST(TcpHeld, AnAbortedBodyIsNotHeldUntilTheProgramLooks) {
  RawPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  for (std::uint64_t sequence = 1; sequence <= 5; ++sequence) {
    const Descriptor message = bulk_message(1, sequence, kCap - kMiB);
    ASSERT_TRUE(peer.control(message));
    ASSERT_TRUE(peer.frame(frame_of(message, 0), zeros(kMiB)));
    Descriptor abort = bulk_message(1, sequence, kMiB);
    abort.kind = MessageKind::abort;
    ASSERT_TRUE(peer.control(abort));
    peer.settle();
  }
  EXPECT_FALSE(peer.error().has_value());
  EXPECT_EQ(sink.received.size(), 5u) << "the program has not looked";
  EXPECT_EQ(peer.end.link->stats().held_bytes, 0u);
  EXPECT_EQ(peer.end.pool->stats().loaned_count, 0u);
}

// The link holds its receive lock meanwhile, and no other peer is served.
TEST(TcpHeld, OnePollTakesABoundedShareOfEveryConnection) {
  constexpr std::uint64_t kPoll = 96 * 1024;
  constexpr std::uint64_t kWritten = 80 * 1024;  // to each lane; the kernel has room for it
  RawPeer peer(3, {}, 0, kPoll);
  RecordingSink& sink = peer.end.attach(1);
  for (std::uint64_t lane = 0; lane < 3; ++lane)
    ASSERT_TRUE(peer.control(bulk_message(1, lane + 1, kMiB)));
  peer.settle();
  for (std::uint64_t lane = 0; lane < 3; ++lane) {
    const FrameHeader header = frame_of(bulk_message(1, lane + 1, kMiB), 0);
    std::vector<std::byte> bytes = zeros(kWritten);
    std::memcpy(bytes.data(), &header, sizeof header);
    ASSERT_EQ(send(peer.lane_fd(lane), bytes.data(), bytes.size(), MSG_DONTWAIT),
              static_cast<ssize_t>(bytes.size()));
  }
  const auto received = [&] {
    std::uint64_t bytes = 0;
    for (const Incoming& incoming : sink.received) bytes += incoming.transfer->received_bytes;
    return bytes;
  };
  constexpr std::uint64_t kAll = 3 * (kWritten - sizeof(FrameHeader));
  int polls = 0;
  for (std::uint64_t before = received(); before < kAll; before = received(), ++polls) {
    ASSERT_TRUE(peer.end.poll());
    EXPECT_LE(received() - before, kPoll);
    if (polls != 1) continue;
    for (const Incoming& incoming : sink.received)
      EXPECT_GT(incoming.transfer->received_bytes, 0u) << incoming.descriptor.sequence;
  }
  EXPECT_EQ(polls, 3);
  EXPECT_FALSE(peer.error().has_value());
}

TEST(TcpHeld, SmallMessagesThatNobodyTakesPauseTheLink) {
  RawPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  const std::uint64_t limit = private_limit_bytes(kCap);
  const auto body = zeros(kMaxInlineBytes);
  std::uint64_t sequence = 0;
  // Writes until the kernel has no more room either.
  for (bool blocked = false; !blocked;) {
    ASSERT_LT(sequence * kMaxInlineBytes, std::uint64_t{1} << 30);
    std::vector<std::byte> bytes;
    const Descriptor message = small_message(1, sequence + 1, kMaxInlineBytes);
    const auto head = std::as_bytes(std::span(&message, 1));
    bytes.insert(bytes.end(), head.begin(), head.end());
    bytes.insert(bytes.end(), body.begin(), body.end());
    const ssize_t sent = send(peer.control_fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (sent > 0) {
      ++sequence;
      // The rest of a message that was cut is written when there is room; here it is the last.
      if (static_cast<std::size_t>(sent) != bytes.size()) {
        bytes.erase(bytes.begin(), bytes.begin() + sent);
        peer.settle();
        if (send(peer.control_fd(), bytes.data(), bytes.size(), MSG_DONTWAIT) !=
            static_cast<ssize_t>(bytes.size()))
          break;
      }
    } else {
      blocked = !peer.reactor.turn(0);
    }
  }
  EXPECT_FALSE(peer.error().has_value());
  EXPECT_LE(peer.end.link->stats().most_held_bytes, limit + kMaxInlineBytes);
  EXPECT_FALSE(peer.reactor.turn(0)) << "a paused lane must not wake the Context";
  // This side causes the silence: no lease lapses.
  const auto begin = std::chrono::steady_clock::now();
  for (int second = 0; second < 10; ++second)
    peer.end.link->tick(begin + std::chrono::seconds(second));
  EXPECT_FALSE(peer.end.link->ended());
  // Once the messages are taken, everything continues.
  std::uint64_t taken = 0;
  ASSERT_TRUE(eventually(
      [&] {
        taken += sink.received.size();
        std::lock_guard lock(peer.end.link->receive_mutex());
        sink.drop_bodies();
        return taken >= sequence - 1;
      },
      [&] { peer.reactor.turn(0); }));
  EXPECT_EQ(peer.end.link->stats().held_bytes, 0u);
}

}  // namespace
}  // namespace tendon::test
