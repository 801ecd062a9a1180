// SPDX-License-Identifier: Apache-2.0
// A stream that breaks, at any byte, in any lane: messages that arrived complete before are kept,
// and nothing else is delivered.
#include <tendon/session/limits.hpp>

#include "link_pair.hpp"
#include "transport/stream/frame.hpp"
#include "transport/stream/stream_link.hpp"

namespace tendon::test {
namespace {

constexpr std::uint64_t kSmall = 50;
constexpr std::uint64_t kLarge = kMaxInlineBytes + 500;

// A link pair whose streams the test can cut.
struct CutPair : LinkPair {
  MemoryStream* control = nullptr;  // `a` writes here
  MemoryStream* bulk = nullptr;

  CutPair() {
    auto streams = MemoryStream::make_pair({.most_read = 997, .record_bytes = 0});
    auto lanes = MemoryStream::make_pair({.most_read = 997, .record_bytes = 0});
    control = streams.first.get();
    bulk = lanes.first.get();
    make(a, std::move(streams.first), "b");
    make(b, std::move(streams.second), "a");
    start();
    EXPECT_TRUE(succeeds(static_cast<StreamLink&>(*a.link).add_lane(std::move(lanes.first))));
    EXPECT_TRUE(succeeds(static_cast<StreamLink&>(*b.link).add_lane(std::move(lanes.second))));
  }
  static void make(LinkEnd& end, std::unique_ptr<ByteStream> stream, const char* peer) {
    end.pool = std::make_shared<SlotPool>("test pool", 64ull << 20);
    StreamLinkOptions options;
    options.path = {PathKind::tcp, "a test asked for it"};
    options.peer = test_peer(peer);
    options.cap_bytes = options.peer_cap_bytes = 64ull << 20;
    options.control = std::move(stream);
    options.pool = end.pool;
    end.link = make_stream_link(std::move(options)).value();
  }
};

// The bytes of a small, a large and a small message on the control lane, and on the bulk lane.
constexpr std::uint64_t kControlBytes = 3 * sizeof(Descriptor) + 2 * kSmall;
constexpr std::uint64_t kBulkBytes = kLarge + 2 * sizeof(FrameHeader);

// `whole`: how many of the messages arrived before the break.
void expect_cut(CutPair& pair, std::size_t whole) {
  RecordingSink& sink = pair.b.attach(1);
  std::vector<std::unique_ptr<OutgoingMessage>> messages;
  for (const std::uint64_t size : {kSmall, kLarge, kSmall}) {
    messages.push_back(std::make_unique<OutgoingMessage>(1, messages.size() + 1, size, size));
    // A message may be lost: send() then reports it, or is too early to know.
    (void)pair.a.link->send(messages.back()->op(), Deadline::never());
  }
  const auto now = std::chrono::steady_clock::now();
  ASSERT_TRUE(eventually([&] { return pair.b.link->ended(); },
                         [&] {
                           while (pair.turn()) {
                           }
                           pair.b.link->tick(now);  // a lane that broke has a moment
                         }));
  ASSERT_TRUE(pair.b.observer.error.has_value());
  EXPECT_EQ(pair.b.observer.error->code, ErrorCode::peer_lost);
  EXPECT_EQ(sink.complete_count(), whole);
  for (std::size_t i = 0; i < sink.received.size(); ++i) {
    if (sink.complete(i))
      EXPECT_TRUE(sink.body(i) == messages[i]->expected()) << i;
    else
      EXPECT_TRUE(sink.received[i].transfer->aborted) << i;
  }
  for (auto& message : messages) (void)pair.a.link->withdraw(message->op());
}

TEST(StreamCut, AtAnyByteOfTheControlLane) {
  for (std::uint64_t cut = 0; cut < kControlBytes; ++cut) {
    SCOPED_TRACE("cut behind byte " + std::to_string(cut));
    CutPair pair;
    pair.control->break_after(cut);
    constexpr std::uint64_t kFirst = sizeof(Descriptor) + kSmall;
    const bool has_large = cut >= kFirst + sizeof(Descriptor);
    expect_cut(pair, (cut >= kFirst ? 1 : 0) + (has_large ? 1 : 0));
  }
}

TEST(StreamCut, AtAnyByteOfABulkLane) {
  // Cuts at every byte near the ends of a frame, and at some between.
  for (std::uint64_t cut = 0; cut < kBulkBytes;
       cut += cut < 80 || cut + 200 > kBulkBytes ? 1 : 89) {
    SCOPED_TRACE("cut behind byte " + std::to_string(cut));
    CutPair pair;
    pair.bulk->break_after(cut);
    expect_cut(pair, 2);
  }
}

// Somebody on the path cuts the lane, and lets the goodbye pass.
TEST(StreamCut, OfABulkLaneBeforeAGoodbyeIsNoOrderlyEnd) {
  for (const std::uint64_t cut : {std::uint64_t{0}, std::uint64_t{20}, kBulkBytes / 2}) {
    SCOPED_TRACE("cut behind byte " + std::to_string(cut));
    CutPair pair;
    pair.bulk->break_after(cut);
    RecordingSink& sink = pair.b.attach(1);
    OutgoingMessage message(1, 1, kLarge, kLarge);
    (void)pair.a.link->send(message.op(), Deadline::never());
    pair.a.link->shut_down();
    while (pair.turn()) {
    }
    ASSERT_TRUE(pair.b.link->ended());
    ASSERT_TRUE(pair.b.observer.error.has_value()) << "as if the peer had left it out";
    EXPECT_EQ(pair.b.observer.error->code, ErrorCode::peer_lost);
    EXPECT_EQ(sink.complete_count(), 0u);
    (void)pair.a.link->withdraw(message.op());
  }
}

}  // namespace
}  // namespace tendon::test
