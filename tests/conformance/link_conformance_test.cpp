// SPDX-License-Identifier: Apache-2.0
// The promises of every Link, whatever carries it. A new implementation adds its factory at the
// end.
#include <sys/socket.h>

#include <algorithm>
#include <mutex>
#include <random>
#include <tendon/session/limits.hpp>
#include <tendon/tensor/tensor.hpp>

#include "link_pair.hpp"
#include "transport/stream/frame.hpp"

namespace tendon::test {
namespace {

constexpr std::uint64_t kCapBytes = 256ull << 20;
// The steps between two interruptions of a message. ThreadSanitizer pays for every byte of it.
#if defined(__SANITIZE_THREAD__)
constexpr int kStepsApart = 16;
#else
constexpr int kStepsApart = 1;
#endif
constexpr std::uint64_t kMiB = 1ull << 20;

// Odd sizes cut every boundary of the protocol somewhere.
constexpr MemoryStream::Manner kCrumbs{
    .most_read = 8191, .most_written = 5003, .room_bytes = 40'000, .stalls_every = 7};
// Behaves as TLS does: whole records lie inside, on both sides.
constexpr MemoryStream::Manner kEncrypting{.room_bytes = 40'000, .record_bytes = 16'000};

class LinkConformance : public testing::TestWithParam<LinkFactory> {
 protected:
  void SetUp() override { GetParam().make(pair_, kCapBytes); }

  void expect_body(const RecordingSink& sink, std::size_t index, const OutgoingMessage& sent) {
    ASSERT_LT(index, sink.received.size());
    ASSERT_TRUE(sink.complete(index)) << "message " << index;
    // Compared without gtest's printer: the bodies are megabytes long.
    EXPECT_TRUE(sink.body(index) == sent.expected()) << "message " << index << " differs";
  }

  template <class End>
  static void shut_down(End& end) {
    std::lock_guard receiving(end.link->receive_mutex());
    end.link->shut_down();
  }

  LinkPair pair_;
};

TEST_P(LinkConformance, KeepsTheOrderOfAPipeAtEverySize) {
  RecordingSink& sink = pair_.b.attach(1);
  const std::vector<std::uint64_t> sizes = {
      0,        1,         255,       256,       257,           1024,     1025,
      8191,     8192,      8193,      8193 + 63, 65536,         kMiB - 1, kMiB,
      kMiB + 1, kMiB + 63, kMiB + 64, kMiB + 65, 2 * kMiB + 64, 5 * kMiB, 3};
  std::vector<std::unique_ptr<OutgoingMessage>> messages;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    messages.push_back(std::make_unique<OutgoingMessage>(1, i + 1, sizes[i], i));
    pair_.send(pair_.a, *messages.back());
    messages.back()->scribble();  // `done` means that the memory is the user's again
  }
  ASSERT_TRUE(pair_.turn_until([&] { return sink.complete_count() == sizes.size(); }));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(sink.received[i].descriptor.sequence, i + 1);
    expect_body(sink, i, *messages[i]);
  }
}

TEST_P(LinkConformance, CarriesValuesAndHeaderBehindThePayload) {
  RecordingSink& sink = pair_.b.attach(1);
  OutgoingMessage small(1, 1, 100, 1, 50, 20);
  OutgoingMessage only_rest(1, 2, 0, 2, 8192, 1);
  OutgoingMessage large(1, 3, 3 * kMiB - 7, 3, kMaxValuesBytes, kMaxMessageHeaderBytes);
  for (OutgoingMessage* message : {&small, &only_rest, &large}) pair_.send(pair_.a, *message);
  ASSERT_TRUE(pair_.turn_until([&] { return sink.complete_count() == 3; }));
  expect_body(sink, 0, small);
  expect_body(sink, 1, only_rest);
  expect_body(sink, 2, large);
}

TEST_P(LinkConformance, GathersGapsAndManyPieces) {
  RecordingSink& sink = pair_.b.attach(1);
  OutgoingMessage gaps(1, 1, 3 * kMiB, 1);
  gaps.cut({{0, 10}, {64, 100000}, {kMiB - 1, 2}, {2 * kMiB, kMiB - 100}});
  OutgoingMessage large_gap(1, 2, 2 * kMiB, 2);
  large_gap.cut({{kMiB + 17, 1}});
  OutgoingMessage crumbs(1, 3, 2 * kMiB, 3, 100, 30);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pieces;
  for (std::uint64_t at = 0; at + 128 <= 2 * kMiB; at += 128) pieces.emplace_back(at, 100);
  crumbs.cut(pieces);
  OutgoingMessage small(1, 4, 4096, 4);
  small.cut({{64, 64}, {256, 1}});
  for (OutgoingMessage* message : {&gaps, &large_gap, &crumbs, &small})
    pair_.send(pair_.a, *message);
  ASSERT_TRUE(pair_.turn_until([&] { return sink.complete_count() == 4; }));
  expect_body(sink, 0, gaps);
  expect_body(sink, 1, large_gap);
  expect_body(sink, 2, crumbs);
  expect_body(sink, 3, small);
}

TEST_P(LinkConformance, GathersStridedParts) {
  RecordingSink& sink = pair_.b.attach(1);
  Tensor table = Tensor::empty(DType::u32, {700, 900}).value();
  for (std::uint32_t i = 0; i < 700 * 900; ++i) {
    std::memcpy(table.mutable_bytes().data() + std::size_t{i} * 4, &i, 4);
  }
  const Tensor turned = table.transpose(0, 1).value();
  ASSERT_FALSE(turned.is_contiguous());
  OutgoingMessage large(1, 1, 64 + turned.size_bytes() + 100, 1, 10);
  large.cut({{0, 60}});
  large.put_strided(64, turned);
  const Tensor corner = turned.slice(0, 3, 9).value().slice(1, 5, 11).value();
  OutgoingMessage small(1, 2, corner.size_bytes(), 2);
  small.cut({});
  small.put_strided(0, corner);
  pair_.send(pair_.a, large);
  pair_.send(pair_.a, small);
  ASSERT_TRUE(pair_.turn_until([&] { return sink.complete_count() == 2; }));
  expect_body(sink, 0, large);
  expect_body(sink, 1, small);
}

TEST_P(LinkConformance, CarriesWhatLiesInASlotAlready) {
  RecordingSink& sink = pair_.b.attach(1);
  const std::uint64_t size = 2 * kMiB + 5;
  auto lease = pair_.a.link->acquire(size + 40).value();
  EXPECT_TRUE(pair_.a.link->owns(*lease));
  EXPECT_FALSE(pair_.b.link->owns(*lease));
  OutgoingMessage message(1, 1, size, 9, 30, 10);
  std::memcpy(lease->slot().memory.data(), message.expected().data(), size);
  message.op().parts = {};
  message.op().loaned = lease.get();
  pair_.send(pair_.a, message);
  ASSERT_TRUE(pair_.turn_until([&] { return sink.complete_count() == 1; }));
  expect_body(sink, 0, message);
}

TEST_P(LinkConformance, InterleavesPipesInBothDirections) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr std::uint32_t kPipes = 6;
  constexpr std::uint64_t kMessages = 12;
  struct Flow {
    LinkEnd* from;
    RecordingSink* sink;
    std::vector<std::unique_ptr<OutgoingMessage>> messages;
    std::size_t next = 0;
  };
  std::vector<Flow> flows;
  for (std::uint32_t pipe = 1; pipe <= kPipes; ++pipe) {
    flows.push_back({&pair_.a, &pair_.b.attach(pipe), {}, 0});
    flows.push_back({&pair_.b, &pair_.a.attach(pipe), {}, 0});
    for (std::uint64_t sequence = 1; sequence <= kMessages; ++sequence) {
      for (Flow* flow : {&flows[flows.size() - 2], &flows[flows.size() - 1]}) {
        const std::uint64_t size = random() % 3 == 0 ? random() % (3 * kMiB) : random() % 20000;
        flow->messages.push_back(
            std::make_unique<OutgoingMessage>(pipe, sequence, size, random(), random() % 100));
      }
    }
  }
  const auto all_sent = [&] {
    return std::all_of(flows.begin(), flows.end(),
                       [](const Flow& flow) { return flow.next == flow.messages.size(); });
  };
  const auto step = [&] {
    Flow& flow = flows[random() % flows.size()];
    if (flow.next == flow.messages.size()) return;
    const auto done = flow.from->link->send(flow.messages[flow.next]->op(), Deadline::never());
    ASSERT_TRUE(succeeds(done));
    if (*done == Sent::done) ++flow.next;
    if (random() % 4 == 0) pair_.turn();
  };
  ASSERT_TRUE(eventually(all_sent, step));
  for (Flow& flow : flows) {
    ASSERT_TRUE(pair_.turn_until([&] { return flow.sink->complete_count() == kMessages; }));
    for (std::size_t i = 0; i < kMessages; ++i) expect_body(*flow.sink, i, *flow.messages[i]);
  }
}

TEST_P(LinkConformance, ASmallPipeIsNotHeldUpBehindALargeMessage) {
  pair_.b.attach(1);
  pair_.b.attach(2);
  OutgoingMessage large(1, 1, 64 * kMiB, 1);
  const bool large_done = pair_.a.link->send(large.op(), Deadline::never()).value() == Sent::done;
  EXPECT_NE(large_done, GetParam().cuts_frames) << "the kernel took 64 MiB at once";
  OutgoingMessage word(2, 1, 100, 2);
  OutgoingMessage medium(2, 2, 100000, 3);
  pair_.send(pair_.a, word);
  pair_.send(pair_.a, medium);
  ASSERT_TRUE(pair_.turn_until([&] { return pair_.b.sinks[2]->complete_count() == 2; }));
  if (GetParam().cuts_frames) {
    EXPECT_EQ(pair_.b.sinks[1]->complete_count(), 0u) << "the large message came first";
  }
  if (!large_done) pair_.send(pair_.a, large);
  ASSERT_TRUE(pair_.turn_until([&] { return pair_.b.sinks[1]->complete_count() == 1; }));
  expect_body(*pair_.b.sinks[1], 0, large);
}

// If has_input() returns true, poll() takes the input in and reports it. The leader would otherwise
// look without end and wake nobody.
TEST_P(LinkConformance, NothingIsLeftToSeeAfterAPollThatMoved) {
  pair_.b.attach(1);
  LinkEnd& from = pair_.a;
  const auto look = [&] {
    EXPECT_TRUE(eventually([&] { return !from.link->has_input() || !from.poll(); }));
    EXPECT_FALSE(from.link->has_input()) << "poll() moved nothing, yet there is something to see";
  };
  from.link->waiting_for_returns.fetch_add(1);
  look();
  std::uint64_t sequence = 0;
  const auto send_one = [&](std::uint64_t size) {
    OutgoingMessage message(1, sequence + 1, size, 1);
    const auto done = from.link->send(message.op(), Deadline::never());
    const bool is_sent = (done && *done == Sent::done) || !from.link->withdraw(message.op());
    if (is_sent) ++sequence;
    return is_sent;
  };
  while (send_one(100)) ASSERT_LT(sequence, 1'000'000u);  // fills the ring, or the kernel's buffers
  look();
  ASSERT_TRUE(pair_.turn_until([&] { return pair_.b.sinks[1]->complete_count() == sequence; }));
  // All messages together may be more than the receiver has memory for.
  pair_.b.sinks[1]->received.clear();
  const std::uint64_t before = sequence;
  look();
  while (send_one(GetParam().cuts_frames ? 100 : 60 * kMiB)) ASSERT_LT(sequence, 2'000'000u);
  look();
  ASSERT_TRUE(
      pair_.turn_until([&] { return pair_.b.sinks[1]->complete_count() == sequence - before; }));
  pair_.b.sinks[1]->received.clear();  // returns its slots
  if (from.link->traits().shows_input) {
    EXPECT_TRUE(from.link->has_input());
    EXPECT_TRUE(from.poll()) << "slots came back and somebody waits for them";
  }
  look();
  EXPECT_TRUE(send_one(GetParam().cuts_frames ? 100 : 60 * kMiB));
  from.link->waiting_for_returns.fetch_sub(1);
}

// Withdraws an op after each possible number of steps, both while the receiver reads and while it
// does not.
TEST_P(LinkConformance, AWithdrawnMessageIsNeverDelivered) {
  RecordingSink& sink = pair_.b.attach(1);
  std::uint64_t sequence = 0;
  std::vector<std::uint64_t> delivered;
  std::size_t withdrawn_count = 0;
  for (const bool reading : {false, true}) {
    bool done = false;
    for (int steps = 1; !done && steps < 200; steps += kStepsApart) {
      ++sequence;
      OutgoingMessage message(1, sequence, 6 * kMiB + 9, sequence, 20);
      for (int step = 0; step < steps && !done; ++step) {
        if (reading && step % 2 == 1) {
          pair_.turn();
        } else {
          // The deadline has passed already: each call sends at most one frame.
          const auto sent = pair_.a.link->send(message.op(), std::chrono::nanoseconds(1));
          if (!sent) {
            ASSERT_TRUE(fails_with(sent, ErrorCode::timeout));
          }
          done = sent && *sent == Sent::done;
        }
      }
      if (!done) {
        done = !pair_.a.link->withdraw(message.op());  // poll() may have finished it meanwhile
        message.scribble();
      }
      if (done)
        delivered.push_back(sequence);
      else
        ++withdrawn_count;
      ++sequence;
      OutgoingMessage marker(1, sequence, 50, sequence);
      pair_.send(pair_.a, marker);
      delivered.push_back(sequence);
      ASSERT_TRUE(pair_.turn_until([&] {
        return !sink.received.empty() && sink.received.back().descriptor.sequence == sequence;
      }));
      pair_.settle();
    }
  }
  EXPECT_GT(withdrawn_count, 0u);
  std::vector<std::uint64_t> got;
  for (std::size_t i = 0; i < sink.received.size(); ++i) {
    if (sink.complete(i))
      got.push_back(sink.received[i].descriptor.sequence);
    else
      EXPECT_TRUE(sink.received[i].transfer->aborted) << sink.received[i].descriptor.sequence;
  }
  EXPECT_EQ(got, delivered);
  EXPECT_FALSE(pair_.a.link->ended());
  EXPECT_FALSE(pair_.b.link->ended());
}

TEST_P(LinkConformance, MessagesForUnknownPipesAreDroppedAndCounted) {
  RecordingSink& known = pair_.b.attach(1);
  OutgoingMessage small(7, 1, 100, 1);
  OutgoingMessage large(7, 2, 3 * kMiB, 2);
  OutgoingMessage wanted(1, 1, 2 * kMiB, 3);
  for (OutgoingMessage* message : {&small, &large, &wanted}) pair_.send(pair_.a, *message);
  ASSERT_TRUE(pair_.turn_until([&] { return known.complete_count() == 1; }));
  expect_body(known, 0, wanted);
  EXPECT_EQ(pair_.b.link->stats().dropped_messages, 2u);
}

TEST_P(LinkConformance, APipeThatGoesAwayInMidMessageLeavesTheLinkAlone) {
  RecordingSink& gone = pair_.b.attach(1);
  RecordingSink& stays = pair_.b.attach(2);
  std::vector<std::byte> place(32 * kMiB);
  gone.claim = [&](const Descriptor&) { return std::vector<MutableBytes>{place}; };
  OutgoingMessage cut_short(1, 1, 32 * kMiB, 1);
  auto done = pair_.a.link->send(cut_short.op(), Deadline::never());
  ASSERT_TRUE(succeeds(done));
  pair_.b.poll();
  {
    std::lock_guard lock(pair_.b.link->receive_mutex());
    pair_.b.link->detach(1);
  }
  pair_.b.sinks.erase(1);
  place = {};  // a sanitizer would see a late byte in here
  if (*done == Sent::later) pair_.send(pair_.a, cut_short);
  OutgoingMessage wanted(2, 1, 2 * kMiB, 3);
  pair_.send(pair_.a, wanted);
  ASSERT_TRUE(pair_.turn_until([&] { return stays.complete_count() == 1; }));
  expect_body(stays, 0, wanted);
  pair_.settle();
  EXPECT_FALSE(pair_.b.link->ended());
}

TEST_P(LinkConformance, OpensAPipeWithATicketAndEndsItWithAnError) {
  RecordingSink& sink = pair_.a.attach(5);
  const std::string ticket = "0123456789abcdef";
  Descriptor open;
  open.kind = MessageKind::open;
  open.pipe = 5;
  open.header_bytes = static_cast<std::uint16_t>(ticket.size());
  pair_.a.link->post(open, as_bytes(ticket));
  ASSERT_TRUE(pair_.turn_until([&] { return !pair_.b.observer.opened.empty(); }));
  EXPECT_EQ(pair_.b.observer.opened[0], std::pair(5u, ticket));
  const std::string text = "nobody listens";
  Descriptor refusal;
  refusal.kind = MessageKind::error;
  refusal.pipe = 5;
  refusal.tag = 108;
  refusal.payload_bytes = text.size();
  pair_.b.link->post(refusal, as_bytes(text));
  ASSERT_TRUE(pair_.turn_until([&] { return sink.received.size() == 1; }));
  EXPECT_EQ(sink.received[0].descriptor.tag, 108u);
  EXPECT_EQ(as_text(Bytes(sink.body(0))), text);
}

TEST_P(LinkConformance, ControlMessagesKeepTheirPlaceAmongMessages) {
  RecordingSink& sink = pair_.b.attach(1);
  OutgoingMessage first(1, 1, 2 * kMiB, 1);
  pair_.send(pair_.a, first);
  Descriptor credit;
  credit.kind = MessageKind::credit;
  credit.pipe = 1;
  credit.sequence = 77;
  credit.payload_bytes = 1ull << 40;
  pair_.a.link->post(credit);
  OutgoingMessage second(1, 2, 10, 2);
  pair_.send(pair_.a, second);
  Descriptor end;
  end.kind = MessageKind::end;
  end.pipe = 1;
  pair_.a.link->post(end);
  ASSERT_TRUE(pair_.turn_until([&] { return sink.received.size() == 4; }));
  std::vector<MessageKind> kinds;
  for (const Incoming& incoming : sink.received) kinds.push_back(incoming.descriptor.kind);
  EXPECT_EQ(kinds, (std::vector{MessageKind::bytes, MessageKind::credit, MessageKind::bytes,
                                MessageKind::end}));
  EXPECT_EQ(sink.received[1].descriptor.payload_bytes, 1ull << 40);
  pair_.settle();
  EXPECT_TRUE(pair_.a.link->drained());
}

TEST_P(LinkConformance, RefusesAMessageAboveTheCapBeforeAnythingIsSent) {
  RecordingSink& sink = pair_.b.attach(1);
  OutgoingMessage at_cap(1, 1, 1, 1);
  at_cap.op().descriptor.payload_bytes = kCapBytes + 1;
  EXPECT_TRUE(fails_with(pair_.a.link->send(at_cap.op(), Deadline::never()),
                         ErrorCode::message_too_large, std::to_string(kCapBytes)));
  OutgoingMessage next(1, 1, 10, 2);
  pair_.send(pair_.a, next);
  ASSERT_TRUE(pair_.turn_until([&] { return sink.complete_count() == 1; }));
  EXPECT_EQ(sink.received.size(), 1u);
  expect_body(sink, 0, next);
}

TEST_P(LinkConformance, CarriesAMessageExactlyAtTheCap) {
  LinkPair small;
  GetParam().make(small, 4 * kMiB);
  RecordingSink& sink = small.b.attach(1);
  OutgoingMessage at_cap(1, 1, 4 * kMiB - 30, 1, 20, 10);
  OutgoingMessage above(1, 2, 4 * kMiB - 30, 2, 20, 11);
  small.send(small.a, at_cap);
  EXPECT_TRUE(
      fails_with(small.a.link->send(above.op(), Deadline::never()), ErrorCode::message_too_large));
  ASSERT_TRUE(small.turn_until([&] { return sink.complete_count() == 1; }));
  expect_body(sink, 0, at_cap);
}

TEST_P(LinkConformance, BodiesThatAreDroppedGiveTheirMemoryBack) {
  RecordingSink& sink = pair_.b.attach(1);
  for (std::uint64_t sequence = 1; sequence <= 20; ++sequence) {
    OutgoingMessage message(1, sequence, 3 * kMiB, sequence);
    pair_.send(pair_.a, message);
    ASSERT_TRUE(pair_.turn_until([&] { return sink.complete_count() == 1; }));
    expect_body(sink, 0, message);
    EXPECT_TRUE(pair_.b.link->lend(sink.received[0].body));
    sink.drop_bodies();
  }
  pair_.settle();
  // For shm: the sender's slots; for tcp: the receiver's pool.
  ASSERT_TRUE(succeeds(pair_.a.link->acquire(4096)));  // looks at returns
  const SlotPoolStats stats = (pair_.b.pool ? pair_.b.link : pair_.a.link)->stats().slots;
  EXPECT_EQ(stats.loaned_count + stats.sent_count + stats.quarantined_count, 0u);
  EXPECT_GT(stats.resident_bytes, 0u);
}

TEST_P(LinkConformance, GoodbyeEndsTheStreamAfterTheLastMessage) {
  RecordingSink& sink = pair_.b.attach(1);
  OutgoingMessage message(1, 1, 3 * kMiB, 1);
  pair_.send(pair_.a, message);
  OutgoingMessage last(1, 2, 100, 2);
  pair_.send(pair_.a, last);
  ASSERT_TRUE(pair_.turn_until([&] { return pair_.a.link->drained(); }));
  shut_down(pair_.a);
  ASSERT_TRUE(pair_.turn_until([&] { return pair_.b.observer.ended_count != 0; }));
  EXPECT_FALSE(pair_.b.observer.error.has_value());
  expect_body(sink, 0, message);
  expect_body(sink, 1, last);
  ASSERT_EQ(sink.failures.size(), 1u);
  EXPECT_EQ(sink.failures[0].code, ErrorCode::end_of_stream);
  EXPECT_EQ(pair_.b.log->back(), (Event{Event::Kind::failed, 1, 0}));
  OutgoingMessage late(1, 1, 10, 3);
  EXPECT_TRUE(
      fails_with(pair_.b.link->send(late.op(), Deadline::never()), ErrorCode::end_of_stream));
}

TEST_P(LinkConformance, AConnectionThatBreaksIsPeerLostAfterWhatCame) {
  RecordingSink& sink = pair_.b.attach(1);
  OutgoingMessage message(1, 1, 100, 1);
  pair_.send(pair_.a, message);
  // Acts as a process that dies: the kernel closes its sockets.
  pair_.a.sinks.clear();
  pair_.a.link.reset();
  ASSERT_TRUE(eventually([&] { return pair_.b.observer.ended_count != 0; },
                         [&] { pair_.reactor.turn(1); }));
  ASSERT_TRUE(pair_.b.observer.error.has_value());
  EXPECT_EQ(pair_.b.observer.error->code, ErrorCode::peer_lost);
  EXPECT_NE(pair_.b.observer.error->detail.find("a (host here, pid 1)"), std::string::npos)
      << pair_.b.observer.error->detail;
  expect_body(sink, 0, message);
  ASSERT_EQ(sink.failures.size(), 1u);
  EXPECT_EQ(sink.failures[0].code, ErrorCode::peer_lost);
}

TEST_P(LinkConformance, FailReachesEverySinkOnceAndEveryLaterCall) {
  RecordingSink& one = pair_.b.attach(1);
  RecordingSink& two = pair_.b.attach(2);
  OutgoingMessage half(1, 1, 64 * kMiB, 1);
  auto done = pair_.a.link->send(half.op(), Deadline::never());
  ASSERT_TRUE(succeeds(done));
  pair_.b.poll();
  OutgoingMessage answer(1, 1, 64 * kMiB, 2);
  ASSERT_TRUE(succeeds(pair_.b.link->send(answer.op(), Deadline::never())));

  pair_.b.link->fail(Error{ErrorCode::peer_lost, "test", "the test says so"}, Death::not_proved);
  pair_.b.link->fail(Error{ErrorCode::internal, "test", "a second word"}, Death::proved);
  EXPECT_EQ(pair_.b.observer.ended_count, 1);
  for (RecordingSink* sink : {&one, &two}) {
    ASSERT_EQ(sink->failures.size(), 1u);
    EXPECT_EQ(sink->failures[0].detail, "the test says so");
  }
  if (GetParam().cuts_frames) {
    ASSERT_EQ(one.received.size(), 1u);
    EXPECT_TRUE(one.received[0].transfer->aborted);
    const auto& log = *pair_.b.log;
    const auto aborted =
        std::find(log.begin(), log.end(), Event{Event::Kind::aborted, 1, 1}) - log.begin();
    const auto failed =
        std::find(log.begin(), log.end(), Event{Event::Kind::failed, 1, 0}) - log.begin();
    EXPECT_LT(aborted, failed) << "a transfer ends before its pipe does";
    EXPECT_TRUE(fails_with(pair_.b.link->send(answer.op(), Deadline::never()), ErrorCode::peer_lost,
                           "the test says so"));
  }
  OutgoingMessage late(1, 2, 10, 3);
  EXPECT_TRUE(fails_with(pair_.b.link->send(late.op(), Deadline::never()), ErrorCode::peer_lost));
  EXPECT_TRUE(fails_with(pair_.b.link->acquire(100), ErrorCode::peer_lost));
  EXPECT_TRUE(pair_.b.link->ended());
  EXPECT_EQ(pair_.b.link->end_error().detail, "the test says so");
  EXPECT_EQ(pair_.b.link->withdraw(answer.op()), !answer.op().done);
  shut_down(pair_.b);  // harmless afterwards
}

TEST_P(LinkConformance, AnAckFollowsTheLastByte) {
  if (pair_.a.link->traits().sent_is_delivered)
    GTEST_SKIP() << "a message is at the peer once it is sent";
  RecordingSink& sink = pair_.b.attach(1);
  RecordingSink& answers = pair_.a.attach(1);
  Descriptor ping;
  ping.kind = MessageKind::ping;
  ping.pipe = 1;
  ping.sequence = 1;
  OutgoingMessage large(1, 1, 32 * kMiB, 1);
  const auto done = pair_.a.link->send(large.op(), Deadline::never());
  ASSERT_TRUE(succeeds(done));
  pair_.a.link->post(ping);
  pair_.b.poll();
  pair_.a.poll();
  EXPECT_EQ(sink.complete_count(), 0u);
  EXPECT_TRUE(answers.received.empty()) << "acknowledged before the last byte came";
  if (*done == Sent::later) pair_.send(pair_.a, large);
  ASSERT_TRUE(pair_.turn_until([&] { return answers.received.size() == 1; }));
  EXPECT_EQ(sink.complete_count(), 1u);
  EXPECT_EQ(answers.received[0].descriptor.kind, MessageKind::ack);
  EXPECT_EQ(answers.received[0].descriptor.sequence, 1u);
  ping.sequence = 1;  // nothing is open: answered at once
  pair_.a.link->post(ping);
  ASSERT_TRUE(pair_.turn_until([&] { return answers.received.size() == 2; }));
}

TEST_P(LinkConformance, BulkGoesStraightToAClaimedDestination) {
  if (!GetParam().cuts_frames) GTEST_SKIP() << "the message lies in a slot already";
  RecordingSink& sink = pair_.b.attach(1);
  std::vector<std::byte> first(kMiB + 3);
  std::vector<std::byte> second(5);
  std::vector<std::byte> third(2 * kMiB);
  sink.claim = [&](const Descriptor& descriptor) -> std::vector<MutableBytes> {
    if (descriptor.sequence == 2) return {};
    return {first, MutableBytes{}, second, third};
  };
  OutgoingMessage claimed(1, 1, first.size() + second.size() + third.size(), 1, 8000, 77);
  OutgoingMessage unclaimed(1, 2, 2 * kMiB, 2);
  OutgoingMessage again(1, 3, first.size() + second.size() + third.size(), 3);
  pair_.send(pair_.a, claimed);
  pair_.send(pair_.a, unclaimed);
  ASSERT_TRUE(pair_.turn_until([&] { return sink.complete_count() == 2; }));
  EXPECT_EQ(sink.received[0].place(), IncomingBody::Place::claimed);
  EXPECT_EQ(sink.received[1].place(), IncomingBody::Place::pool_slot);
  expect_body(sink, 0, claimed);
  expect_body(sink, 1, unclaimed);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), claimed.expected().begin()));
  pair_.send(pair_.a, again);
  ASSERT_TRUE(pair_.turn_until([&] { return sink.complete_count() == 3; }));
  expect_body(sink, 2, again);
}

TEST_P(LinkConformance, SaysWhatItIs) {
  EXPECT_EQ(pair_.a.link->peer_name(), "b (host here, pid 1)");
  EXPECT_EQ(pair_.a.link->path().reason, "a test asked for it");
  EXPECT_EQ(pair_.a.link->cap_bytes(), kCapBytes);
  RecordingSink& sink = pair_.b.attach(1);
  OutgoingMessage small(1, 1, 100, 1);
  OutgoingMessage large(1, 2, kMiB, 2);
  pair_.send(pair_.a, small);
  pair_.send(pair_.a, large);
  ASSERT_TRUE(pair_.turn_until([&] { return sink.complete_count() == 2; }));
  EXPECT_EQ(pair_.a.link->stats().messages_sent, 2u);
  EXPECT_EQ(pair_.a.link->stats().bytes_sent, 100 + kMiB);
  EXPECT_EQ(pair_.b.link->stats().messages_received, 2u);
  EXPECT_EQ(pair_.b.link->stats().bytes_received, 100 + kMiB);
}

// Each trait, checked by the behaviour of the link.

TEST_P(LinkConformance, TraitSentIsDelivered) {
  RecordingSink& sink = pair_.b.attach(1);
  // Sends until there is no more room; then this side does nothing more.
  std::uint64_t sent_count = 0;
  for (;; ++sent_count) {
    ASSERT_LT(sent_count, 1'000'000u);
    OutgoingMessage message(1, sent_count + 1, 4000, 1);
    if (pair_.a.link->send(message.op(), Deadline::never()).value() == Sent::later) break;
  }
  while (pair_.b.poll()) {
  }
  EXPECT_EQ(sink.complete_count() == sent_count, pair_.a.link->traits().sent_is_delivered);
}

TEST_P(LinkConformance, TraitSlotsBoundWindow) {
  LinkPair small;
  GetParam().make(small, 4 * kMiB);
  small.b.attach(1);
  std::vector<std::shared_ptr<LoanedSlot>> taken;
  while (auto lease = small.a.link->acquire(kMiB)) taken.push_back(*std::move(lease));
  OutgoingMessage message(1, 1, kMiB, 1);
  const auto step = [&] { return small.a.link->send(message.op(), Deadline::never()).value(); };
  bool sent = false;
  for (int round = 0; round < 100 && !sent; ++round) {
    sent = step() == Sent::done;
    small.turn();
  }
  EXPECT_EQ(sent, !small.a.link->traits().slots_bound_window);
  taken.clear();
  EXPECT_TRUE(small.turn_until([&] { return sent || (sent = step() == Sent::done); }));
}

TEST_P(LinkConformance, TraitSlotsGoOver) {
  RecordingSink& sink = pair_.b.attach(1);
  auto lease = pair_.a.link->acquire(kMiB).value();
  OutgoingMessage message(1, 1, kMiB, 9);
  std::memcpy(lease->slot().memory.data(), message.expected().data(), kMiB);
  message.op().parts = {};
  message.op().loaned = lease.get();
  pair_.send(pair_.a, message);
  ASSERT_TRUE(pair_.turn_until([&] { return sink.complete_count() == 1; }));
  expect_body(sink, 0, message);
  std::byte& first = lease->slot().memory[0];
  first = ~first;
  EXPECT_EQ(sink.body(0)[0] == first, pair_.a.link->traits().slots_go_over);
}

TEST_P(LinkConformance, TraitShowsInput) {
  pair_.b.attach(1);
  pair_.settle();
  EXPECT_FALSE(pair_.b.link->has_input());
  OutgoingMessage message(1, 1, 100, 1);
  ASSERT_EQ(pair_.a.link->send(message.op(), Deadline::never()).value(), Sent::done);
  EXPECT_EQ(pair_.b.link->has_input(), pair_.b.link->traits().shows_input);
}

TEST_P(LinkConformance, OnlySharedMemoryHasWhatItAloneCanDo) {
  EXPECT_EQ(pair_.a.link->shared_memory() != nullptr, pair_.a.link->path().kind == PathKind::shm);
}

TEST_P(LinkConformance, LeavesNothingWatchedWhenItGoes) {
  EXPECT_GT(pair_.reactor.watched_count(), 0u);
  shut_down(pair_.a);
  ASSERT_TRUE(pair_.turn_until([&] { return pair_.b.observer.ended_count == 1; }));
  pair_.a.link.reset();
  pair_.b.link.reset();
  EXPECT_EQ(pair_.reactor.watched_count(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Links, LinkConformance, testing::ValuesIn(links_of_the_product()),
                         [](const auto& tested) { return tested.param.name; });
INSTANTIATE_TEST_SUITE_P(
    Streams, LinkConformance,
    testing::Values(memory_factory("memory", {}, 1), memory_factory("memory_in_crumbs", kCrumbs, 2),
                    memory_factory("memory_that_encrypts", kEncrypting, 2),
                    secure_factory("tls_that_renews", 2,
                                   {test_credentials(renewals_each(65536)), nullptr})),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace tendon::test
