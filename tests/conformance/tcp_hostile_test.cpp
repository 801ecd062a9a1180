// SPDX-License-Identifier: Apache-2.0
// A tcp link whose peer breaks the protocol, stops in the middle, or says nothing at all.
#include <functional>
#include <numeric>
#include <tendon/session/limits.hpp>

#include "raw_peer.hpp"
#include "transport/stream/control_out.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMiB = 1ull << 20;

std::vector<std::byte> zeros(std::size_t size_bytes) { return std::vector<std::byte>(size_bytes); }

Descriptor inline_message(std::uint32_t pipe, std::uint64_t sequence, std::uint32_t size_bytes) {
  Descriptor descriptor = bulk_message(pipe, sequence, size_bytes);
  descriptor.flags = Descriptor::kInline;
  descriptor.segment_or_inline_bytes = size_bytes;
  return descriptor;
}

void expect_violation(const RawPeer& peer, std::string_view text) {
  expect_violation(peer.end, text, "mallory");
}

struct BadDescriptor {
  const char* name;
  std::function<void(Descriptor&)> spoil;
  const char* says;
};

class TcpRefusesDescriptor : public testing::TestWithParam<BadDescriptor> {};

TEST_P(TcpRefusesDescriptor, AndNamesWhatIsWrong) {
  RawPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  Descriptor good = inline_message(1, 1, 5);
  ASSERT_TRUE(peer.control(good));
  ASSERT_TRUE(peer.control(zeros(5)));
  Descriptor bad = inline_message(1, 2, 5);
  GetParam().spoil(bad);
  peer.control(bad);
  peer.settle();
  expect_violation(peer, GetParam().says);
  // Earlier messages are kept.
  ASSERT_EQ(sink.received.size(), 1u);
  EXPECT_EQ(sink.failures.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, TcpRefusesDescriptor,
    testing::Values(
        BadDescriptor{"kind_0", [](Descriptor& d) { d.kind = MessageKind{0}; },
                      "unknown message kind"},
        BadDescriptor{"kind_14", [](Descriptor& d) { d.kind = MessageKind{14}; }, "(kind 14"},
        BadDescriptor{"flags", [](Descriptor& d) { d.flags |= 2; }, "flags 3"},
        BadDescriptor{"reserved", [](Descriptor& d) { d.reserved[0] = 1; }, "reserved"},
        BadDescriptor{"layout_of_bytes", [](Descriptor& d) { d.layout = Layout::aligned; },
                      "unknown layout"},
        BadDescriptor{"slot", [](Descriptor& d) { d.slot = 1; }, "names a slot"},
        BadDescriptor{"generation", [](Descriptor& d) { d.generation = 1; }, "names a slot"},
        BadDescriptor{"offset", [](Descriptor& d) { d.offset = 1; }, "names a slot"},
        BadDescriptor{"inline_length", [](Descriptor& d) { d.segment_or_inline_bytes = 6; },
                      "inline length"},
        BadDescriptor{"inline_without_flag", [](Descriptor& d) { d.flags = 0; },
                      "inline bytes without the flag"},
        BadDescriptor{"small_but_not_inline",
                      [](Descriptor& d) {
                        d.flags = 0;
                        d.segment_or_inline_bytes = 0;
                      },
                      "travel beside the descriptor"},
        BadDescriptor{"large_but_inline",
                      [](Descriptor& d) { d.payload_bytes = d.segment_or_inline_bytes = 8193; },
                      "inline body above its limit"},
        BadDescriptor{"above_cap",
                      [](Descriptor& d) { d = bulk_message(1, 2, RawPeer::kCapBytes + 1); },
                      "payload above the link's cap"},
        BadDescriptor{"sum_above_cap",
                      [](Descriptor& d) {
                        d = bulk_message(1, 2, RawPeer::kCapBytes);
                        d.header_bytes = 1;
                      },
                      "message above the link's cap"},
        BadDescriptor{"huge", [](Descriptor& d) { d = bulk_message(1, 2, ~std::uint64_t{0}); },
                      "payload 18446744073709551615"},
        BadDescriptor{"values_above_limit",
                      [](Descriptor& d) {
                        d = bulk_message(1, 2, 9000);
                        d.values_bytes = kMaxValuesBytes + 1;
                      },
                      "non-tensor data above"},
        BadDescriptor{"header_above_limit",
                      [](Descriptor& d) {
                        d = bulk_message(1, 2, 9000);
                        d.header_bytes = kMaxMessageHeaderBytes + 1;
                      },
                      "header above"},
        BadDescriptor{"credit_with_body",
                      [](Descriptor& d) {
                        d = bulk_message(1, 2, 0);
                        d.kind = MessageKind::credit;
                        d.values_bytes = 1;
                      },
                      "with a body"},
        BadDescriptor{"segment",
                      [](Descriptor& d) {
                        d = bulk_message(1, 2, 4096);
                        d.kind = MessageKind::segment;
                      },
                      "shared memory only"},
        BadDescriptor{"schema_above_limit",
                      [](Descriptor& d) {
                        d = bulk_message(1, 2, kMaxSchemaBytes + 1);
                        d.kind = MessageKind::schema;
                      },
                      "schema above its limit"},
        BadDescriptor{"credit_of_the_link_for_more_than_it_was_sent",
                      [](Descriptor& d) {
                        d = bulk_message(0, 0, 1);
                        d.kind = MessageKind::credit;
                      },
                      "more than was announced"},
        BadDescriptor{"goodbye_of_a_pipe",
                      [](Descriptor& d) {
                        d = bulk_message(1, 2, 0);
                        d.kind = MessageKind::goodbye;
                      },
                      "belongs to no pipe"},
        BadDescriptor{"open_with_payload", [](Descriptor& d) { d.kind = MessageKind::open; },
                      "more than a ticket"},
        BadDescriptor{"long_error",
                      [](Descriptor& d) {
                        d = bulk_message(1, 2, 9000);
                        d.kind = MessageKind::error;
                      },
                      "error text"},
        BadDescriptor{"abort_of_nothing",
                      [](Descriptor& d) {
                        d = bulk_message(1, 2, 0);
                        d.kind = MessageKind::abort;
                      },
                      "no message of that number is incomplete"}),
    [](const auto& tested) { return tested.param.name; });

struct BadFrame {
  const char* name;
  std::function<void(FrameHeader&)> spoil;
  const char* says;
};

class TcpRefusesFrame : public testing::TestWithParam<BadFrame> {};

// The message has three frames: 1 MiB, 1 MiB - 64 and the tail; the first has arrived.
TEST_P(TcpRefusesFrame, AndNamesWhatIsWrong) {
  RawPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  const Descriptor message = bulk_message(1, 1, 2 * kMiB);
  ASSERT_TRUE(peer.control(message));
  ASSERT_TRUE(peer.frame(frame_of(message, 0), zeros(kMiB)));
  FrameHeader bad = frame_of(message, kMiB);
  GetParam().spoil(bad);
  peer.frame(bad, zeros(100));
  peer.settle();
  expect_violation(peer, GetParam().says);
  ASSERT_EQ(sink.received.size(), 1u);
  EXPECT_TRUE(sink.received[0].transfer->aborted);
  EXPECT_FALSE(sink.received[0].transfer->complete);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, TcpRefusesFrame,
    testing::Values(
        BadFrame{"empty", [](FrameHeader& h) { h.length_bytes = 0; }, "length of 0 bytes"},
        BadFrame{"too_long", [](FrameHeader& h) { h.length_bytes = kMaxFrameBytes + 1; },
                 "is not in 1..1048576"},
        BadFrame{"reserved", [](FrameHeader& h) { h.reserved = 7; }, "reserved bytes are 7"},
        BadFrame{"shorter", [](FrameHeader& h) { --h.length_bytes; }, "it must be 1048512"},
        BadFrame{"longer", [](FrameHeader& h) { ++h.length_bytes; }, "it must be 1048512"},
        BadFrame{"again",
                 [](FrameHeader& h) {
                   h.offset = 0;
                   h.length_bytes = kMaxFrameBytes;
                 },
                 "came before"},
        BadFrame{"overlapping", [](FrameHeader& h) { h.offset = kMiB - 1; }, "no frame"},
        BadFrame{"behind_the_end", [](FrameHeader& h) { h.offset = 2 * kMiB; }, "no frame"},
        BadFrame{"far_behind", [](FrameHeader& h) { h.offset = ~std::uint64_t{0}; }, "no frame"}),
    [](const auto& tested) { return tested.param.name; });

TEST(TcpHostile, TheSameMessageAnnouncedTwiceIsRefused) {
  RawPeer peer;
  peer.end.attach(1);
  ASSERT_TRUE(peer.control(bulk_message(1, 1, kMiB)));
  peer.control(bulk_message(1, 1, kMiB));
  peer.settle();
  expect_violation(peer, "announced before");
}

TEST(TcpHostile, AbortsThatDoNotFitAreRefused) {
  for (const std::uint64_t sent_bytes : {kMiB - 1, 2 * kMiB, ~std::uint64_t{0}}) {
    RawPeer peer;
    peer.end.attach(1);
    const Descriptor message = bulk_message(1, 1, 2 * kMiB);
    ASSERT_TRUE(peer.control(message));
    ASSERT_TRUE(peer.frame(frame_of(message, 0), zeros(10)));  // begun
    peer.settle();
    Descriptor abort = bulk_message(1, 1, sent_bytes);
    abort.kind = MessageKind::abort;
    peer.control(abort);
    peer.settle();
    expect_violation(peer, "it says that");
  }
}

TEST(TcpHostile, FramesBeyondAnAbortAreRefused) {
  RawPeer peer;
  peer.end.attach(1);
  const Descriptor message = bulk_message(1, 1, 3 * kMiB);
  ASSERT_TRUE(peer.control(message));
  Descriptor abort = bulk_message(1, 1, kMiB);
  abort.kind = MessageKind::abort;
  ASSERT_TRUE(peer.control(abort));
  ASSERT_TRUE(peer.frame(frame_of(message, 0), zeros(kMiB - 1)));
  peer.settle();
  EXPECT_FALSE(peer.error().has_value());
  ASSERT_TRUE(peer.bulk(zeros(1)));
  peer.settle();
  EXPECT_FALSE(peer.error().has_value());
  // Everything that it promised has arrived: the number is unknown now, and the frame waits for a
  // descriptor.
  ASSERT_TRUE(peer.control(message));
  abort.payload_bytes = 0;
  ASSERT_TRUE(peer.control(abort));
  ASSERT_TRUE(peer.control(message));
  abort.payload_bytes = kMiB - 10;
  ASSERT_TRUE(peer.control(abort));
  peer.frame(frame_of(message, 0), zeros(10));
  peer.settle();
  expect_violation(peer, "aborted after");
}

TEST(TcpHostile, NothingMayFollowAGoodbye) {
  RawPeer peer;
  peer.end.attach(1);
  ASSERT_TRUE(peer.control(bulk_message(1, 1, kMiB)));  // keeps the link open for its frames
  Descriptor goodbye;
  goodbye.kind = MessageKind::goodbye;
  ASSERT_TRUE(peer.control(goodbye));
  peer.control(goodbye);
  peer.settle();
  expect_violation(peer, "after its goodbye");
}

// Cuts a valid conversation after every byte: complete messages are delivered, the rest never is,
// and the end is always the loss of the peer.
TEST(TcpHostile, AConversationCutAnywhereIsPeerLost) {
  const Descriptor small = inline_message(1, 1, 10);
  const Descriptor large = bulk_message(1, 2, 9000);
  const Descriptor last = inline_message(1, 3, 0);
  std::vector<std::byte> control;
  std::vector<std::byte> bulk;
  const auto append = [](std::vector<std::byte>& to, const auto& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    to.insert(to.end(), bytes.begin(), bytes.end());
  };
  append(control, small);
  control.resize(control.size() + 10);
  append(control, large);
  append(control, last);
  append(bulk, frame_of(large, 0));
  bulk.resize(bulk.size() + 9000 - kTailBytes);
  append(bulk, frame_of(large, 9000 - kTailBytes));
  bulk.resize(bulk.size() + kTailBytes);

  const auto run = [&](std::size_t control_bytes, std::size_t bulk_bytes) {
    SCOPED_TRACE("control " + std::to_string(control_bytes) + ", bulk " +
                 std::to_string(bulk_bytes));
    RawPeer peer;
    RecordingSink& sink = peer.end.attach(1);
    ASSERT_TRUE(peer.control(Bytes(control).first(control_bytes)));
    ASSERT_TRUE(peer.bulk(Bytes(bulk).first(bulk_bytes)));
    peer.close_control();
    peer.close_lane(0);
    ASSERT_TRUE(eventually([&] { return peer.end.link->ended(); }, [&] { peer.reactor.turn(1); }));
    ASSERT_TRUE(peer.error().has_value());
    EXPECT_EQ(peer.error()->code, ErrorCode::peer_lost);
    const std::size_t announced =
        (control_bytes >= 74) + (control_bytes >= 138) + (control_bytes >= 202);
    ASSERT_EQ(sink.received.size(), announced);
    if (announced > 1) {
      EXPECT_EQ(sink.complete(1), bulk_bytes == bulk.size());
      EXPECT_NE(sink.received[1].transfer->complete, sink.received[1].transfer->aborted);
    }
    EXPECT_EQ(sink.failures.size(), 1u);
  };
  for (std::size_t cut = 0; cut <= control.size(); ++cut) run(cut, bulk.size());
  for (std::size_t cut = 0; cut <= bulk.size(); cut += cut < 200 || cut > 8900 ? 1 : 97) {
    run(control.size(), cut);
  }
}

// A frame of a message that was never announced blocks the end of its lane.
TEST(TcpHostile, AParkedLaneDoesNotKeepALinkWhosePeerHasLeft) {
  RawPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  ASSERT_TRUE(peer.control(bulk_message(1, 1, kMiB)));
  ASSERT_TRUE(peer.frame(frame_of(bulk_message(1, 2, kMiB), 0), zeros(10)));
  peer.settle();
  Descriptor goodbye;
  goodbye.kind = MessageKind::goodbye;
  ASSERT_TRUE(peer.control(goodbye));
  peer.close_control();
  peer.close_lane(0);
  ASSERT_TRUE(eventually([&] { return peer.end.link->ended(); }, [&] { peer.reactor.turn(1); }));
  EXPECT_EQ(sink.failures.size(), 1u);
  EXPECT_EQ(peer.end.link->stats().held_bytes, 0u);
  EXPECT_EQ(peer.reactor.watched_count(), 0u);
}

// The peer is not hostile: the handshake of its lane is still under way here.
TEST(TcpHostile, AGoodbyeWaitsForALaneThatIsStillToCome) {
  RawPeer peer(0, {}, 1);
  RecordingSink& sink = peer.end.attach(1);
  const Descriptor message = bulk_message(1, 1, 10'000);
  ASSERT_TRUE(peer.control(message));
  Descriptor goodbye;
  goodbye.kind = MessageKind::goodbye;
  ASSERT_TRUE(peer.control(goodbye));
  peer.close_control();
  peer.settle();
  ASSERT_FALSE(peer.end.link->ended());
  peer.add_lane();
  for (std::uint64_t at = 0; at < message.body_bytes();) {
    const FrameHeader frame = frame_of(message, at);
    ASSERT_TRUE(peer.frame(frame, zeros(frame.length_bytes)));
    at += frame.length_bytes;
  }
  peer.close_lane(0);
  ASSERT_TRUE(eventually([&] { return peer.end.link->ended(); }, [&] { peer.reactor.turn(1); }));
  ASSERT_EQ(sink.received.size(), 1u);
  EXPECT_TRUE(sink.complete(0));
  EXPECT_FALSE(peer.error().has_value()) << "an end in order";
}

// Uses tcp: epoll reports the end of a unix socket even when no event was requested.
TEST(TcpHostile, AParkedLaneSeesItsEnd) {
  RawPeer peer(0);
  peer.end.attach(1);
  SocketPair lane = make_sockets(AF_INET);
  ASSERT_TRUE(succeeds(static_cast<StreamLink&>(*peer.end.link)
                           .add_lane(std::make_unique<SocketStream>(std::move(lane.b)))));
  const FrameHeader unknown = frame_of(bulk_message(1, 2, kMiB), 0);
  ASSERT_EQ(send(lane.a.get(), &unknown, sizeof unknown, 0), static_cast<ssize_t>(sizeof unknown));
  ASSERT_TRUE(peer.reactor.turn(1000));
  lane.a.reset();
  ASSERT_TRUE(peer.reactor.turn(1000));
  EXPECT_FALSE(peer.reactor.turn(0)) << "the same event must not come again and again";
  const auto begin = std::chrono::steady_clock::now();
  for (int tick = 0; tick < 3; ++tick) peer.end.link->tick(begin + tick * 1ms);
  ASSERT_TRUE(peer.error().has_value());
  EXPECT_EQ(peer.error()->code, ErrorCode::peer_lost);
}

// Its lanes stay open and silent; nobody expects signs of life after a goodbye.
TEST(TcpHostile, AGoodbyeBeforeTheRestOfAMessageEndsWithTheLease) {
  RawPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  ASSERT_TRUE(peer.control(bulk_message(1, 1, kMiB)));
  Descriptor goodbye;
  goodbye.kind = MessageKind::goodbye;
  ASSERT_TRUE(peer.control(goodbye));
  const auto begin = std::chrono::steady_clock::now();
  peer.end.link->tick(begin);
  peer.end.link->tick(begin + 2900ms);
  EXPECT_FALSE(peer.end.link->ended());
  peer.end.link->tick(begin + 3100ms);
  ASSERT_TRUE(peer.error().has_value());
  EXPECT_EQ(peer.error()->code, ErrorCode::peer_lost);
  EXPECT_NE(peer.error()->detail.find("goodbye"), std::string::npos) << peer.error()->detail;
  EXPECT_EQ(sink.failures.size(), 1u);
  EXPECT_EQ(peer.end.link->stats().held_bytes, 0u);
}

TEST(TcpHostile, AFrameBeforeItsDescriptorWaitsForIt) {
  RawPeer peer(2);
  RecordingSink& sink = peer.end.attach(1);
  const Descriptor message = bulk_message(1, 1, kMiB + 100);
  ASSERT_TRUE(peer.frame(frame_of(message, 0), zeros(100), 1));
  ASSERT_TRUE(peer.frame(frame_of(message, kMiB), zeros(36), 0));
  peer.settle();
  // The lane is parked: no event repeats for it, whatever else arrives there.
  ASSERT_TRUE(peer.frame(frame_of(message, kMiB + 36), zeros(64), 0));
  EXPECT_FALSE(peer.reactor.turn(0));
  EXPECT_TRUE(sink.received.empty());
  ASSERT_TRUE(peer.control(message));
  ASSERT_TRUE(peer.bulk(zeros(kMiB - 100), 1));
  peer.settle();
  ASSERT_EQ(sink.complete_count(), 1u);
  EXPECT_TRUE(sink.body(0) == zeros(kMiB + 100));
}

TEST(TcpHostile, AnAbortAndItsFrameMayOvertakeEachOther) {
  for (const bool frame_first : {false, true}) {
    RawPeer peer;
    RecordingSink& sink = peer.end.attach(1);
    const Descriptor message = bulk_message(1, 1, 3 * kMiB);
    Descriptor abort = bulk_message(1, 1, kMiB);
    abort.kind = MessageKind::abort;
    ASSERT_TRUE(peer.control(message));
    if (frame_first) {
      ASSERT_TRUE(peer.frame(frame_of(message, 0), zeros(kMiB)));
    }
    peer.settle();
    ASSERT_TRUE(peer.control(abort));
    peer.settle();
    EXPECT_TRUE(sink.received.at(0).transfer->aborted)
        << "told at once: the memory is its owner's again";
    if (!frame_first) {
      ASSERT_TRUE(peer.frame(frame_of(message, 0), zeros(kMiB)));
    }
    const Descriptor next = bulk_message(1, 2, 9000);
    ASSERT_TRUE(peer.control(next));
    ASSERT_TRUE(peer.frame(frame_of(next, 0), zeros(9000 - 64)));
    ASSERT_TRUE(peer.frame(frame_of(next, 9000 - 64), zeros(64)));
    peer.settle();
    EXPECT_EQ(sink.complete_count(), 1u);
    EXPECT_FALSE(peer.error().has_value());
  }
}

TEST(TcpHostile, ReadingPausesAtTheLimitOfOpenTransfers) {
  RawPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  const std::uint64_t size = 9000;
  for (std::uint64_t sequence = 1; sequence <= kMaxOpenTransfers + 1; ++sequence) {
    ASSERT_TRUE(peer.control(bulk_message(1, sequence, size)));
  }
  peer.settle();
  EXPECT_EQ(sink.received.size(), kMaxOpenTransfers);
  EXPECT_FALSE(peer.reactor.turn(0)) << "a paused lane must not wake the Context";
  const Descriptor first = bulk_message(1, 1, size);
  ASSERT_TRUE(peer.frame(frame_of(first, 0), zeros(size - 64)));
  ASSERT_TRUE(peer.frame(frame_of(first, size - 64), zeros(64)));
  peer.settle();
  EXPECT_EQ(sink.complete_count(), 1u);
  EXPECT_EQ(sink.received.size(), kMaxOpenTransfers + 1);
  EXPECT_FALSE(peer.error().has_value());
}

TEST(TcpHostile, APeerThatDoesNotReadItsAnswersIsNotReadEither) {
  RawPeer peer;
  Descriptor ping;
  ping.kind = MessageKind::ping;
  ping.pipe = 1;
  const auto bytes = std::as_bytes(std::span(&ping, 1));
  std::vector<std::byte> many;
  for (int i = 0; i < 1024; ++i) many.insert(many.end(), bytes.begin(), bytes.end());
  std::size_t written = 0;
  // Writes until nothing more can be written, up to 1 GiB.
  for (bool blocked = false; !blocked && written < (std::size_t{1} << 30);) {
    const ssize_t sent =
        send(peer.control_fd(), many.data(), many.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
      written += static_cast<std::size_t>(sent);
    else
      blocked = !peer.reactor.turn(0);
    // A partial descriptor would shift the rest.
    if (sent > 0 && static_cast<std::size_t>(sent) != many.size()) {
      const std::size_t rest = (64 - static_cast<std::size_t>(sent) % 64) % 64;
      ASSERT_TRUE(rest == 0 || peer.control(bytes.last(rest)));
    }
  }
  EXPECT_LT(written, std::size_t{64} << 20);
  EXPECT_FALSE(peer.error().has_value());
  // Once the peer reads, everything continues. A turn ends after a time with messages left, which
  // raise no event: a Context polls such a link again.
  EXPECT_TRUE(eventually([&] { return peer.heard().size() >= written / 64; },
                         [&] {
                           peer.reactor.turn(0);
                           peer.end.poll();
                         }));
}

TEST(TcpHostile, BytesThatCameWithTheHandshakeAreRead) {
  const Descriptor message = inline_message(1, 1, 3);
  std::vector<std::byte> early(67);
  std::memcpy(early.data(), &message, sizeof message);
  // The pipe exists before the Context turns for the first time.
  RawPeer peer(1, early);
  RecordingSink& sink = peer.end.attach(1);
  ASSERT_TRUE(eventually([&] { return sink.received.size() == 1; }, [&] { peer.reactor.turn(1); }));
  EXPECT_FALSE(peer.reactor.turn(0));
}

TEST(TcpHostile, ManyUnreadPingsOfOnePipeAreOneAnswer) {
  RawPeer peer;
  peer.end.attach(1);
  const Descriptor message = bulk_message(1, 1, 9000);
  ASSERT_TRUE(peer.control(message));
  Descriptor ping;
  ping.kind = MessageKind::ping;
  ping.pipe = 1;
  for (std::uint64_t sequence = 1; sequence <= 100; ++sequence) {
    ping.sequence = sequence;
    ASSERT_TRUE(peer.control(ping));
  }
  peer.settle();
  EXPECT_TRUE(peer.heard().empty());
  ASSERT_TRUE(peer.frame(frame_of(message, 0), zeros(9000 - 64)));
  ASSERT_TRUE(peer.frame(frame_of(message, 9000 - 64), zeros(64)));
  peer.settle();
  ASSERT_EQ(peer.heard().size(), 1u);
  EXPECT_EQ(peer.heard()[0].kind, MessageKind::ack);
  EXPECT_EQ(peer.heard()[0].sequence, 100u);
}

// Signs of life; the argument of tick() is the time.

TEST(TcpLife, SilenceIsSuspectThenLost) {
  RawPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  Descriptor ping;
  ping.kind = MessageKind::ping;
  ASSERT_TRUE(peer.control(ping));  // heard at `begin`
  const auto begin = std::chrono::steady_clock::now();
  peer.end.link->tick(begin);
  EXPECT_FALSE(peer.end.link->suspect());
  peer.end.link->tick(begin + 999ms);
  EXPECT_FALSE(peer.end.link->suspect());
  peer.end.link->tick(begin + 1100ms);
  EXPECT_TRUE(peer.end.link->suspect());
  ASSERT_TRUE(peer.control(ping));
  peer.end.link->tick(begin + 1200ms);
  EXPECT_FALSE(peer.end.link->suspect());
  peer.end.link->tick(begin + 4100ms);
  EXPECT_FALSE(peer.end.link->ended());
  // The word lies unread in the socket when the lease has lapsed here: it counts.
  ASSERT_TRUE(peer.control(ping));
  peer.end.link->tick(begin + 4300ms);
  EXPECT_FALSE(peer.end.link->ended());
  peer.end.link->tick(begin + 7400ms);
  ASSERT_TRUE(peer.error().has_value());
  EXPECT_EQ(peer.error()->code, ErrorCode::peer_lost);
  EXPECT_NE(peer.error()->detail.find("no sign of life for 3.1 s (lease 3.0 s)"), std::string::npos)
      << peer.error()->detail;
  EXPECT_EQ(sink.failures.size(), 1u);
}

TEST(TcpLife, EveryTickSaysAWord) {
  RawPeer peer;
  const auto begin = std::chrono::steady_clock::now();
  for (int tick = 0; tick < 5; ++tick) peer.end.link->tick(begin + tick * 250ms);
  ASSERT_EQ(peer.heard().size(), 5u);
  EXPECT_EQ(peer.heard()[0].kind, MessageKind::ping);
  EXPECT_EQ(peer.heard()[0].pipe, 0u);
}

TEST(TcpLife, ABulkConnectionThatEndsAloneIsPeerLost) {
  RawPeer peer(2);
  RecordingSink& sink = peer.end.attach(1);
  peer.close_lane(1);
  peer.settle();
  EXPECT_FALSE(peer.end.link->ended()) << "the goodbye may still come";
  const auto begin = std::chrono::steady_clock::now();
  for (int tick = 0; tick < 3; ++tick) peer.end.link->tick(begin + tick * 1ms);
  ASSERT_TRUE(peer.error().has_value());
  EXPECT_EQ(peer.error()->code, ErrorCode::peer_lost);
  EXPECT_EQ(sink.failures.size(), 1u);
}

TEST(TcpLife, AGoodbyeMayComeAfterTheBulkConnectionsEnd) {
  RawPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  const Descriptor message = bulk_message(1, 1, 9000);
  ASSERT_TRUE(peer.control(message));
  ASSERT_TRUE(peer.frame(frame_of(message, 0), zeros(9000 - 64)));
  ASSERT_TRUE(peer.frame(frame_of(message, 9000 - 64), zeros(64)));
  peer.close_lane(0);
  peer.settle();
  Descriptor goodbye;
  goodbye.kind = MessageKind::goodbye;
  ASSERT_TRUE(peer.control(goodbye));
  peer.close_control();
  ASSERT_TRUE(eventually([&] { return peer.end.link->ended(); }, [&] { peer.reactor.turn(1); }));
  EXPECT_FALSE(peer.error().has_value());
  EXPECT_EQ(sink.complete_count(), 1u);
}

TEST(TcpLife, FramesMayComeAfterTheGoodbye) {
  RawPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  const Descriptor message = bulk_message(1, 1, 9000);
  ASSERT_TRUE(peer.control(message));
  Descriptor goodbye;
  goodbye.kind = MessageKind::goodbye;
  ASSERT_TRUE(peer.control(goodbye));
  peer.close_control();
  peer.settle();
  EXPECT_FALSE(peer.end.link->ended());
  ASSERT_TRUE(peer.frame(frame_of(message, 0), zeros(9000 - 64)));
  ASSERT_TRUE(peer.frame(frame_of(message, 9000 - 64), zeros(64)));
  peer.settle();
  EXPECT_TRUE(peer.end.link->ended());
  EXPECT_FALSE(peer.error().has_value());
  EXPECT_EQ(sink.complete_count(), 1u);
}

TEST(TcpLife, RefusesMoreLanesThanItsLimit) {
  RawPeer peer(kMaxStreamsPerLink);
  SocketPair one_more = make_sockets(AF_UNIX);
  auto stream = std::make_unique<SocketStream>(std::move(one_more.b));
  EXPECT_TRUE(fails_with(static_cast<StreamLink&>(*peer.end.link).add_lane(std::move(stream)),
                         ErrorCode::limit_exceeded, "16"));
}

}  // namespace
}  // namespace tendon::test
