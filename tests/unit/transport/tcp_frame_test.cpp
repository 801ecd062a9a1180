// SPDX-License-Identifier: Apache-2.0
// The receiving half of the tcp protocol without sockets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <tendon/memory/storage.hpp>

#include "support/expect.hpp"
#include "transport/stream/bulk_parser.hpp"
#include "transport/stream/control_parser.hpp"
#include "transport/stream/frame.hpp"
#include "transport/stream/inbound.hpp"

namespace tendon::detail {
namespace {

using test::fails_with;
using test::succeeds;

constexpr std::uint64_t kMiB = 1ull << 20;

TEST(FrameCut, CoversEveryByteOnceAndEndsWithTheTail) {
  for (const std::uint64_t body : std::initializer_list<std::uint64_t>{
           8193, 8193 + 64, kMiB - 1, kMiB, kMiB + 63, kMiB + 64, kMiB + 65, 2 * kMiB + 64,
           5 * kMiB + 12345, 70 * kMiB}) {
    SCOPED_TRACE(body);
    const FrameCut cut{body};
    std::uint64_t offset = 0;
    std::uint64_t count = 0;
    while (offset < body) {
      const std::uint32_t length = cut.length_at(offset);
      ASSERT_GT(length, 0u);
      ASSERT_LE(length, kMaxFrameBytes);
      EXPECT_EQ(cut.index_of(offset), count);
      offset += length;
      ++count;
      if (offset == body) {
        EXPECT_EQ(length, kTailBytes);
      }
    }
    EXPECT_EQ(offset, body);
    EXPECT_EQ(count, cut.count());
    EXPECT_EQ(cut.length_at(body), 0u);
    EXPECT_EQ(cut.length_at(1), 0u);
    EXPECT_EQ(cut.length_at(~std::uint64_t{0}), 0u);
  }
}

TEST(FrameHeader, HasTheBytesOfTheProtocol) {
  const FrameHeader header{0x03020100, 0x07060504, 0x0f0e0d0c0b0a0908, 0x1716151413121110,
                           0x1f1e1d1c1b1a1918};
  unsigned char bytes[32];
  std::memcpy(bytes, &header, sizeof bytes);
  for (unsigned char i = 0; i < 32; ++i) EXPECT_EQ(bytes[i], i);
}

TEST(FrameHeader, LengthHoldsAtItsLimitAndBreaksOneBeyond) {
  FrameHeader header;
  header.length_bytes = kMaxFrameBytes;
  EXPECT_EQ(check_frame(header), "");
  ++header.length_bytes;
  EXPECT_NE(check_frame(header), "");
  header.length_bytes = 0;
  EXPECT_NE(check_frame(header), "");
  header.length_bytes = 1;
  EXPECT_EQ(check_frame(header), "");
}

// Does the work of a link, without sockets.
class Host : public InboundHost, public MessageSink {
 public:
  void deliver(Incoming incoming) override { delivered.push_back(std::move(incoming)); }
  MessageSink* receiver_of(std::uint32_t pipe) override { return pipe == 9 ? nullptr : this; }
  Result<IncomingBody> allocate(std::uint64_t size_bytes) override {
    Storage storage = Storage::allocate(size_bytes).value();
    IncomingBody body;
    body.place = IncomingBody::Place::pool_slot;
    body.data = storage.data();
    body.owner = storage.owner();
    return body;
  }
  void answer(const Descriptor& descriptor) override { answers.push_back(descriptor); }
  Result<void> on_link_credit(std::uint64_t taken_bytes) override {
    taken.push_back(taken_bytes);
    return {};
  }
  void on_room() override { ++rooms; }
  Result<void> on_word(const Descriptor&, Bytes) override { return {}; }
  void on_open(const Descriptor& descriptor, Bytes ticket) override {
    opened.emplace_back(descriptor.pipe, std::string(as_text(ticket)));
  }
  void on_message(Incoming&&) override {}
  bool admits(const Descriptor&) override { return true; }
  bool claim_destination(const Descriptor&, std::vector<MutableBytes>&) override { return false; }
  void on_transfer_ended(const Transfer& transfer) override {
    (transfer.complete ? completed : aborted).push_back(transfer.descriptor.sequence);
  }
  void on_link_failed(const Error&) override {}

  std::vector<Incoming> delivered;
  std::vector<Descriptor> answers;
  std::vector<std::uint64_t> taken;
  int rooms = 0;
  std::vector<std::pair<std::uint32_t, std::string>> opened;
  std::vector<std::uint64_t> completed;
  std::vector<std::uint64_t> aborted;
};

// A Host with its state machine. Delivered messages are destroyed first, because the host counts
// their shares.
class Receiver : public Host {
 public:
  explicit Receiver(std::uint64_t cap_bytes) : inbound(*this, cap_bytes) {}
  ~Receiver() override { delivered.clear(); }
  Inbound inbound;
};

template <class T>
void append(std::vector<std::byte>& to, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// Feeds a stream in pieces; returns the first error.
Result<void> feed(ControlParser& parser, Inbound& inbound, Bytes stream, std::size_t piece_bytes) {
  while (!stream.empty()) {
    const MutableBytes room = parser.room();
    const std::size_t size = std::min({room.size(), stream.size(), piece_bytes});
    EXPECT_GT(size, 0u);
    std::memcpy(room.data(), stream.data(), size);
    parser.on_received(size);
    stream = stream.subspan(size);
    for (;;) {
      TENDON_TRY(message, parser.next());
      if (!message) break;
      TENDON_CHECK(inbound.on_message(*message));
    }
  }
  return {};
}

Result<void> feed(BulkParser& parser, Bytes stream, std::size_t piece_bytes) {
  while (!stream.empty()) {
    const ReadTargets targets = parser.targets();
    EXPECT_GT(targets.count, 0u) << "parked";
    if (targets.count == 0) return {};
    std::size_t fed = 0;
    for (std::size_t i = 0; i < targets.count && fed < piece_bytes; ++i) {
      const std::size_t size =
          std::min({targets.pieces[i].iov_len, stream.size(), piece_bytes - fed});
      std::memcpy(targets.pieces[i].iov_base, stream.data(), size);
      stream = stream.subspan(size);
      fed += size;
    }
    TENDON_CHECK(parser.on_received(fed));
  }
  return {};
}

Descriptor bulk_descriptor(std::uint32_t pipe, std::uint64_t sequence, std::uint64_t size_bytes) {
  Descriptor descriptor;
  descriptor.kind = MessageKind::bytes;
  descriptor.pipe = pipe;
  descriptor.sequence = sequence;
  descriptor.payload_bytes = size_bytes;
  return descriptor;
}

// A random conversation arrives unchanged however the kernel cuts the streams, and over any number
// of lanes.
TEST(TcpReceive, HoweverTheStreamsAreCutTheMessagesAreTheSame) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    const std::size_t lane_count = 1 + random() % 3;
    std::vector<std::byte> control;
    std::vector<std::vector<std::byte>> lanes(lane_count);
    std::map<std::uint64_t, std::vector<std::byte>> bodies;
    std::vector<FrameHeader> frames;
    for (std::uint64_t sequence = 1; sequence <= 8; ++sequence) {
      const std::uint32_t pipe = random() % 5 == 0 ? 9 : 1;  // nobody receives pipe 9
      const bool bulk = random() % 2 == 0;
      const std::uint64_t size = bulk ? 8193 + random() % (5 * kMiB / 2) : random() % 8193;
      Descriptor descriptor = bulk_descriptor(pipe, sequence, size);
      std::vector<std::byte> body(size);
      const std::uint32_t start = random();
      for (std::size_t i = 0; i < size; ++i)
        body[i] =
            static_cast<std::byte>((start + static_cast<std::uint32_t>(i) * 2654435761u) >> 24);
      if (!bulk) {
        descriptor.flags = Descriptor::kInline;
        descriptor.segment_or_inline_bytes = static_cast<std::uint32_t>(size);
      }
      append(control, descriptor);
      if (bulk) {
        const FrameCut cut{size};
        for (std::uint64_t at = 0; at < size; at += cut.length_at(at))
          frames.push_back({pipe, cut.length_at(at), sequence, at, 0});
      } else {
        control.insert(control.end(), body.begin(), body.end());
      }
      bodies[sequence] = std::move(body);
    }
    std::shuffle(frames.begin(), frames.end(), random);
    for (const FrameHeader& frame : frames) {
      std::vector<std::byte>& lane = lanes[random() % lane_count];
      append(lane, frame);
      const auto from = bodies[frame.sequence].begin() + static_cast<std::ptrdiff_t>(frame.offset);
      lane.insert(lane.end(), from, from + frame.length_bytes);
    }
    Receiver host(64 * kMiB);
    Inbound& inbound = host.inbound;
    ControlParser parser(64 * kMiB);
    const std::size_t pieces[] = {1, 63, 64, 65, 1000, 70000, 5 * kMiB};
    const std::size_t control_piece = pieces[random() % std::size(pieces)];
    ASSERT_TRUE(succeeds(feed(parser, inbound, control, control_piece)));
    EXPECT_EQ(parser.buffered_bytes(), 0u);
    for (const auto& lane : lanes) {
      BulkParser bulk(inbound);
      // One byte at a time is slow for megabytes; only the sizes around headers and tails matter.
      const std::size_t piece = 31 + random() % 300 * (random() % 2 == 0 ? 1 : 5000);
      ASSERT_TRUE(succeeds(feed(bulk, lane, piece)));
      EXPECT_FALSE(bulk.unfinished());
    }
    EXPECT_EQ(inbound.open_count(), 0u);
    ASSERT_EQ(host.delivered.size(), 8u);
    for (std::uint64_t sequence = 1; sequence <= 8; ++sequence) {
      Incoming& incoming = host.delivered[sequence - 1];
      ASSERT_EQ(incoming.descriptor.sequence, sequence);
      if (incoming.descriptor.pipe == 9) continue;
      const auto& expected = bodies[sequence];
      ASSERT_TRUE(incoming.arrived());
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), incoming.body.data)) << sequence;
    }
  }
}

TEST(TcpReceive, OneByteAtATime) {
  Receiver host(kMiB);
  Inbound& inbound = host.inbound;
  ControlParser parser(kMiB);
  std::vector<std::byte> control;
  append(control, bulk_descriptor(1, 1, 8193));
  ASSERT_TRUE(succeeds(feed(parser, inbound, control, 1)));
  std::vector<std::byte> lane;
  append(lane, FrameHeader{1, 8193 - kTailBytes, 1, 0, 0});
  lane.resize(lane.size() + 8193 - kTailBytes, std::byte{1});
  append(lane, FrameHeader{1, kTailBytes, 1, 8193 - kTailBytes, 0});
  lane.resize(lane.size() + kTailBytes, std::byte{2});
  BulkParser bulk(inbound);
  ASSERT_TRUE(succeeds(feed(bulk, lane, 1)));
  EXPECT_EQ(host.completed, std::vector<std::uint64_t>{1});
  ASSERT_TRUE(host.delivered[0].arrived());
  EXPECT_EQ(host.delivered[0].body.data[8193 - kTailBytes - 1], std::byte{1});
  EXPECT_EQ(host.delivered[0].body.data[8193 - kTailBytes], std::byte{2});
}

TEST(TcpReceive, AnAckWaitsForEveryMessageUpToItsNumber) {
  Receiver host(kMiB);
  Inbound& inbound = host.inbound;
  ControlParser parser(kMiB);
  std::vector<std::byte> control;
  append(control, bulk_descriptor(1, 1, 9000));
  append(control, bulk_descriptor(1, 2, 9000));
  Descriptor ping = bulk_descriptor(1, 1, 0);
  ping.kind = MessageKind::ping;
  append(control, ping);
  ping.pipe = 2;  // nothing of this pipe is open
  append(control, ping);
  ASSERT_TRUE(succeeds(feed(parser, inbound, control, 4096)));
  ASSERT_EQ(host.answers.size(), 1u);
  EXPECT_EQ(host.answers[0].pipe, 2u);
  std::vector<std::byte> lane;
  append(lane, FrameHeader{1, 9000 - kTailBytes, 1, 0, 0});
  lane.resize(lane.size() + 9000 - kTailBytes);
  append(lane, FrameHeader{1, kTailBytes, 1, 9000 - kTailBytes, 0});
  lane.resize(lane.size() + kTailBytes);
  BulkParser bulk(inbound);
  ASSERT_TRUE(succeeds(feed(bulk, Bytes(lane).first(lane.size() - 1), 4096)));
  EXPECT_EQ(host.answers.size(), 1u);
  ASSERT_TRUE(succeeds(feed(bulk, Bytes(lane).last(1), 4096)));
  ASSERT_EQ(host.answers.size(), 2u);  // message 2 is still open, and nobody asked for it
  EXPECT_EQ(host.answers[1].kind, MessageKind::ack);
  EXPECT_EQ(host.answers[1].pipe, 1u);
  EXPECT_EQ(host.answers[1].sequence, 1u);
}

TEST(TcpReceive, TheControlLaneCarriesTheLargestInlineBodyInAnyPlaceOfItsBuffer) {
  Receiver host(kMiB);
  Inbound& inbound = host.inbound;
  ControlParser parser(kMiB);
  std::vector<std::byte> control;
  for (std::uint64_t sequence = 1; sequence <= 100; ++sequence) {
    Descriptor descriptor = bulk_descriptor(1, sequence, kMaxInlineBytes - sequence % 3);
    descriptor.flags = Descriptor::kInline;
    descriptor.segment_or_inline_bytes = static_cast<std::uint32_t>(descriptor.payload_bytes);
    append(control, descriptor);
    control.resize(control.size() + descriptor.payload_bytes, static_cast<std::byte>(sequence));
  }
  ASSERT_TRUE(succeeds(feed(parser, inbound, control, 10007)));
  ASSERT_EQ(host.delivered.size(), 100u);
  for (std::size_t i = 0; i < 100; ++i) {
    const std::byte* data = host.delivered[i].body.data;
    EXPECT_TRUE(std::all_of(data, data + host.delivered[i].descriptor.payload_bytes,
                            [&](std::byte byte) { return byte == static_cast<std::byte>(i + 1); }));
  }
}

}  // namespace
}  // namespace tendon::detail
