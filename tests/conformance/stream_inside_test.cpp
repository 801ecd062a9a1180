// SPDX-License-Identifier: Apache-2.0
// Bytes that lie inside a stream, where no event reports them: the link does.
#include <tendon/session/limits.hpp>

#include "link_pair.hpp"
#include "raw_peer.hpp"
#include "transport/stream/frame.hpp"
#include "transport/stream/stream_link.hpp"

namespace tendon::test {
namespace {

// A link that takes little at a time, and streams by which its peer writes.
struct InsidePair {
  static constexpr std::uint64_t kPollBytes = 1024;

  TestReactor reactor;
  LinkEnd end;
  std::unique_ptr<MemoryStream> control;
  std::unique_ptr<MemoryStream> bulk;

  InsidePair() {
    const MemoryStream::Manner manner{.record_bytes = 64 * 1024};
    auto streams = MemoryStream::make_pair(manner);
    auto lanes = MemoryStream::make_pair(manner);
    control = std::move(streams.first);
    bulk = std::move(lanes.first);
    end.pool = std::make_shared<SlotPool>("test pool", 64ull << 20);
    StreamLinkOptions options;
    options.path = {PathKind::tcp, "a test asked for it"};
    options.peer = test_peer("peer");
    options.cap_bytes = options.peer_cap_bytes = 64ull << 20;
    options.control = std::move(streams.second);
    options.pool = end.pool;
    options.poll_bytes = kPollBytes;
    end.link = make_stream_link(std::move(options)).value();
    EXPECT_TRUE(succeeds(end.link->start(reactor, end.observer)));
    EXPECT_TRUE(succeeds(static_cast<StreamLink&>(*end.link).add_lane(std::move(lanes.second))));
  }
  static void write(MemoryStream& stream, Bytes bytes) {
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    ASSERT_EQ(stream.write({&piece, 1}).bytes, bytes.size());
  }
  // Takes one event for the record; after that epoll has nothing to report.
  void take_in() {
    ASSERT_TRUE(reactor.turn(1000));
    EXPECT_FALSE(reactor.turn(0));
    int polls = 0;
    for (; end.link->has_input(); ++polls) {
      ASSERT_TRUE(end.poll());
      ASSERT_LT(polls, 1000);
    }
    EXPECT_GT(polls, 1) << "it was taken in at once";
  }
};

TEST(StreamInside, TheLinkTellsOfBytesOfItsControlLane) {
  InsidePair pair;
  RecordingSink& sink = pair.end.attach(1);
  constexpr std::size_t kCount = 200;
  std::vector<std::byte> bytes;
  for (std::uint64_t sequence = 1; sequence <= kCount; ++sequence) {
    Descriptor end;
    end.kind = MessageKind::credit;
    end.pipe = 1;
    end.sequence = sequence;
    const auto head = std::as_bytes(std::span(&end, 1));
    bytes.insert(bytes.end(), head.begin(), head.end());
  }
  InsidePair::write(*pair.control, bytes);
  pair.take_in();
  EXPECT_EQ(sink.received.size(), kCount);
}

TEST(StreamInside, TheLinkTellsOfBytesOfABulkLane) {
  InsidePair pair;
  RecordingSink& sink = pair.end.attach(1);
  const Descriptor message = bulk_message(1, 1, 20'000);
  InsidePair::write(*pair.control, std::as_bytes(std::span(&message, 1)));
  ASSERT_TRUE(pair.reactor.turn(1000));
  std::vector<std::byte> bytes;
  for (std::uint64_t at = 0; at < message.body_bytes();) {
    const FrameHeader header = frame_of(message, at);
    at += header.length_bytes;
    const auto head = std::as_bytes(std::span(&header, 1));
    bytes.insert(bytes.end(), head.begin(), head.end());
    bytes.resize(bytes.size() + header.length_bytes);
  }
  InsidePair::write(*pair.bulk, bytes);
  pair.take_in();
  EXPECT_EQ(sink.complete_count(), 1u);
}

}  // namespace
}  // namespace tendon::test
