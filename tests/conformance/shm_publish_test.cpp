// SPDX-License-Identifier: Apache-2.0
// Slots of a publish pool on shm links: many readers read them in place and each returns them once,
// and dead, departed or lying readers do no harm.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "raw_shm_peer.hpp"
#include "transport/shared_memory_link.hpp"

namespace tendon::test {
namespace {

constexpr std::uint64_t kCapBytes = 64ull << 20;
constexpr std::uint64_t kSampleBytes = 40'000;

/// A sample in a slot, and the op that shows it on one pipe.
struct Sample {
  Sample(PublishPool& pool, std::uint32_t pipe, std::uint64_t sequence,
         std::uint64_t size_bytes = kSampleBytes)
      : Sample(pool.acquire(size_bytes).value(), pipe, sequence, size_bytes) {
    std::fill_n(slot->memory().data(), size_bytes, static_cast<std::byte>(sequence));
  }
  Sample(std::shared_ptr<PublishedSlot> published, std::uint32_t pipe, std::uint64_t sequence,
         std::uint64_t size_bytes = kSampleBytes)
      : slot(std::move(published)) {
    part = {0, Bytes(slot->memory()).first(size_bytes), nullptr, size_bytes};
    op.descriptor.kind = MessageKind::bytes;
    op.descriptor.pipe = pipe;
    op.descriptor.sequence = sequence;
    op.descriptor.payload_bytes = size_bytes;
    op.parts = {&part, 1};
    op.published = slot.get();
  }
  Sample(const Sample&) = delete;
  Sample& operator=(const Sample&) = delete;

  std::shared_ptr<PublishedSlot> slot;
  BodyPart part;
  SendOp op;
};

class ShmPublish : public testing::Test {
 protected:
  ShmPublish() {
    shm_factory({pool, std::make_shared<PublishPool>(kCapBytes)}).make(pair, kCapBytes);
  }

  void share(const Sample& sample) {
    EXPECT_TRUE(
        pair.a.link->shared_memory()->share_segment(pool->segment_of(*sample.slot)).value() ==
        Sent::done);
  }
  bool show(Sample& sample) {
    const auto prepared = pair.a.link->prepare(sample.op, Deadline::never());
    EXPECT_TRUE(succeeds(prepared));
    Link* const link = pair.a.link.get();
    const bool done = prepared && *prepared == Sent::done;
    if (done) show_and_ring({&link, 1});
    return done;
  }
  [[nodiscard]] std::uint64_t used() const { return pool->stats().slots.loaned_count; }
  [[nodiscard]] std::uint64_t holds() const { return pool->stats().holds; }

  std::shared_ptr<PublishPool> pool = std::make_shared<PublishPool>(kCapBytes);
  LinkPair pair;
};

TEST_F(ShmPublish, ASampleIsReadInPlaceAndReturned) {
  RecordingSink& sink = pair.b.attach(1);
  Sample sample(*pool, 1, 1);
  share(sample);
  ASSERT_TRUE(show(sample));
  pair.settle();
  ASSERT_EQ(sink.received.size(), 1u);
  EXPECT_EQ(sink.body(0), std::vector<std::byte>(kSampleBytes, std::byte{1}));
  EXPECT_EQ(sink.received[0].body.access, Access::read_only);
  sample.slot->memory()[5] = std::byte{9};  // the same memory, which its owner may still write
  EXPECT_EQ(sink.received[0].body.data[5], std::byte{9});
  EXPECT_EQ(holds(), 1u);
  EXPECT_EQ(pair.a.link->stats().holds, 1u);
  sample.slot.reset();
  EXPECT_EQ(used(), 1u);
  sink.drop_bodies();
  EXPECT_TRUE(pair.a.link->collect_returns());
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(pair.a.link->stats().slots.ignored_returns, 0u);
}

TEST_F(ShmPublish, EachPipeOfALinkHasAHold) {
  RecordingSink& one = pair.b.attach(1);
  RecordingSink& two = pair.b.attach(2);
  Sample first(*pool, 1, 1);
  Sample second(first.slot, 2, 1);
  share(first);
  ASSERT_TRUE(show(first) && show(second));
  pair.settle();
  first.slot.reset();
  second.slot.reset();
  EXPECT_EQ(holds(), 2u);
  one.drop_bodies();
  EXPECT_TRUE(pair.a.link->collect_returns());
  EXPECT_EQ(used(), 1u);
  two.drop_bodies();
  EXPECT_TRUE(pair.a.link->collect_returns());
  EXPECT_EQ(used(), 0u);
}

// The peer sees nothing before it is shown, and is woken only if it sleeps.
TEST_F(ShmPublish, PrepareShowAndRingAreApart) {
  RecordingSink& sink = pair.b.attach(1);
  Sample sample(*pool, 1, 1);
  OutgoingMessage small(1, 2, 100, 2);
  share(sample);
  ASSERT_TRUE(pair.a.link->prepare(sample.op, Deadline::never()).value() == Sent::done);
  ASSERT_TRUE(pair.a.link->prepare(small.op(), Deadline::never()).value() == Sent::done);
  pair.settle();
  EXPECT_TRUE(sink.received.empty());
  pair.b.link->announce_sleep();
  pair.a.link->show();
  EXPECT_EQ(pair.a.link->stats().doorbells, 0u);
  full_barrier();
  pair.a.link->ring_behind_barrier();
  EXPECT_EQ(pair.a.link->stats().doorbells, 1u);
  pair.b.link->announce_awake();
  pair.a.link->ring_behind_barrier();
  EXPECT_EQ(pair.a.link->stats().doorbells, 1u);
  pair.settle();
  EXPECT_EQ(sink.received.size(), 2u);
}

TEST_F(ShmPublish, ManyLinksAreShownAtOnce) {
  std::array<LinkPair, 3> pairs;
  std::vector<Link*> links;
  const auto slot = pool->acquire(kSampleBytes).value();
  std::vector<std::unique_ptr<Sample>> samples;
  for (LinkPair& each : pairs) {
    shm_factory({pool, nullptr}).make(each, kCapBytes);
    each.b.attach(1);
    Sample& sample = *samples.emplace_back(std::make_unique<Sample>(slot, 1, 1));
    ASSERT_TRUE(each.a.link->shared_memory()->share_segment(pool->segment_of(*slot)).value() ==
                Sent::done);
    ASSERT_TRUE(each.a.link->prepare(sample.op, Deadline::never()).value() == Sent::done);
    links.push_back(each.a.link.get());
  }
  pairs[1].b.link->announce_sleep();
  show_and_ring(links);
  for (LinkPair& each : pairs) {
    each.settle();
    EXPECT_EQ(each.b.sinks[1]->received.size(), 1u);
    EXPECT_EQ(each.a.link->stats().doorbells, &each == &pairs[1] ? 1u : 0u);
  }
  EXPECT_EQ(holds(), 3u);
}

// Nobody reads: a closed window is no error, and words of control still have room.
TEST_F(ShmPublish, AFullRingClosesTheWindowAndLeavesRoomForControl) {
  RecordingSink& sink = pair.b.attach(1);
  const auto slot = pool->acquire(kSampleBytes).value();
  Sample first(slot, 1, 1);
  share(first);
  std::uint64_t shown = 0;
  for (; shown < ControlBlock::kMessageCount; ++shown) {
    Sample sample(slot, 1, shown + 1);
    if (!show(sample)) break;
  }
  EXPECT_EQ(shown, ControlBlock::kMessageCount - 64);
  EXPECT_EQ(holds(), shown) << "what was not shown is not held";
  Descriptor word;
  word.kind = MessageKind::credit;
  word.pipe = 1;
  pair.a.link->post(word);
  EXPECT_TRUE(pair.a.link->drained());
  pair.settle();
  EXPECT_EQ(sink.received.size(), shown + 1);
  sink.drop_bodies();
  EXPECT_TRUE(pair.a.link->collect_returns());
  EXPECT_EQ(holds(), 0u);
}

TEST_F(ShmPublish, AFullArenaLeavesRoomForControl) {
  pair.b.attach(1);
  std::uint64_t sent = 0;
  for (; sent < 100; ++sent) {
    OutgoingMessage message(1, sent + 1, 8192, 1);
    if (pair.a.link->send(message.op(), Deadline::never()).value() == Sent::later) break;
  }
  EXPECT_LT(sent, 100u);
  const std::string text(4096, 'x');
  Descriptor word;
  word.kind = MessageKind::error;
  word.pipe = 7;
  word.payload_bytes = text.size();
  pair.a.link->post(word, as_bytes(text));
  EXPECT_TRUE(pair.a.link->drained());
}

TEST_F(ShmPublish, AsManyHoldsAsPlacesInTheReturnRing) {
  RecordingSink& sink = pair.b.attach(1);
  const auto slot = pool->acquire(kSampleBytes).value();
  Sample first(slot, 1, 1);
  share(first);
  std::uint64_t shown = 0;
  for (; shown < 2 * PublishPool::kMaxHoldsPerLink; ++shown) {
    Sample sample(slot, 1, shown + 1);
    if (!show(sample) || sample.op.over_share) break;
    if (shown % 500 == 0) pair.settle();
  }
  pair.settle();
  EXPECT_EQ(shown, PublishPool::kMaxHoldsPerLink) << "the next one is a copy";
  EXPECT_EQ(pair.a.link->stats().slots.sent_count, 1u);
  EXPECT_EQ(holds(), PublishPool::kMaxHoldsPerLink);
  sink.drop_bodies();
  EXPECT_EQ(pair.b.link->stats().dropped_returns, 0u);
  EXPECT_TRUE(pair.a.link->collect_returns());
  EXPECT_EQ(holds(), 0u);
}

TEST_F(ShmPublish, ASampleAboveTheCapOfTheLinkIsRefusedHere) {
  const auto large = std::make_shared<PublishPool>(4 * kCapBytes);
  LinkPair other;
  shm_factory({large, nullptr}).make(other, kCapBytes);
  Sample sample(large->acquire(kCapBytes + 1).value(), 1, 1, kCapBytes + 1);
  ASSERT_EQ(other.a.link->shared_memory()->share_segment(large->segment_of(*sample.slot)).value(),
            Sent::done);
  EXPECT_TRUE(fails_with(other.a.link->prepare(sample.op, Deadline::never()),
                         ErrorCode::message_too_large, "ContextOptions::link_cap_bytes"));
  EXPECT_EQ(large->stats().holds, 0u);
  other.settle();
  EXPECT_FALSE(other.b.link->ended());
}

// The peer does not read its socket. Other links continue.
TEST(ShmPublishSocket, AFullOneClosesTheWindow) {
  const auto pool = std::make_shared<PublishPool>(kCapBytes);
  RawShmPeer peer(getpid(), pool);
  const SegmentInfo info = pool->segment_of(*pool->acquire(kSampleBytes).value());
  int shared = 0;
  for (; shared < 100'000; ++shared) {
    const auto passed = peer.end.link->shared_memory()->share_segment(info);
    ASSERT_TRUE(succeeds(passed));
    if (*passed == Sent::later) break;
  }
  EXPECT_LT(shared, 100'000);
  EXPECT_FALSE(peer.end.link->ended());
}

// A goodbye ends messages, but not returns.
TEST_F(ShmPublish, ADepartedReaderReturnsWhatItHas) {
  RecordingSink& sink = pair.b.attach(1);
  Sample sample(*pool, 1, 1);
  share(sample);
  ASSERT_TRUE(show(sample));
  pair.settle();
  sample.slot.reset();
  pair.b.link->close(Error{ErrorCode::context_closed, "test", "closed"});
  pair.settle();
  ASSERT_TRUE(pair.a.link->ended());
  EXPECT_EQ(used(), 1u);
  EXPECT_EQ(pool->stats().quarantined, 0u);
  EXPECT_EQ(sink.received.at(0).body.data[100], std::byte{1});
  sink.drop_bodies();
  EXPECT_TRUE(pair.a.link->collect_returns());
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(pair.a.link->stats().holds, 0u);
}

// The owner has asked for the ring.
TEST_F(ShmPublish, ADepartedReaderRingsForReturns) {
  RecordingSink& sink = pair.b.attach(1);
  Sample sample(*pool, 1, 1);
  share(sample);
  ASSERT_TRUE(show(sample));
  pair.settle();
  pair.b.link->close(Error{ErrorCode::context_closed, "test", "closed"});
  pair.settle();
  const auto before = pair.b.link->stats().doorbells;
  sink.drop_bodies();
  EXPECT_EQ(pair.b.link->stats().doorbells, before + 1);
}

TEST_F(ShmPublish, ADepartedReaderThatDiesHoldsNothing) {
  pair.b.attach(1);
  Sample sample(*pool, 1, 1);
  share(sample);
  ASSERT_TRUE(show(sample));
  pair.settle();
  sample.slot.reset();
  pair.b.link->close(Error{ErrorCode::context_closed, "test", "closed"});
  pair.settle();
  EXPECT_EQ(used(), 1u);
  pair.a.link->fail(Error{ErrorCode::peer_lost, "test", "proved"}, Death::proved);
  EXPECT_EQ(used(), 0u);
}

TEST_F(ShmPublish, AFailedLinkQuarantinesItsHoldsUntilTheyReturn) {
  RecordingSink& sink = pair.b.attach(1);
  Sample sample(*pool, 1, 1);
  share(sample);
  ASSERT_TRUE(show(sample));
  pair.settle();
  pair.a.link->fail(Error{ErrorCode::peer_lost, "test", "no proof"}, Death::not_proved);
  EXPECT_EQ(pool->stats().quarantined, 1u);
  Sample again(sample.slot, 1, 2);
  EXPECT_FALSE(pair.a.link->prepare(again.op, Deadline::never()).has_value());
  sample.slot.reset();
  again.slot.reset();
  EXPECT_EQ(used(), 1u);
  sink.drop_bodies();
  EXPECT_TRUE(pair.a.link->collect_returns());
  EXPECT_EQ(used(), 0u);
}

// For a peer of protocol 1.0, and for any peer over sockets, the message is copied.
TEST(ShmPublishTo10, IsCopied) {
  const auto pool = std::make_shared<PublishPool>(kCapBytes);
  std::vector<LinkFactory> factories{shm_factory(), tcp_factory("tcp", AF_INET, 1)};
  for (const LinkFactory& factory : factories) {
    LinkPair pair;
    factory.make(pair, kCapBytes);
    RecordingSink& sink = pair.b.attach(1);
    Sample sample(*pool, 1, 1);
    if (SharedMemoryLink* const memory = pair.a.link->shared_memory()) {
      EXPECT_FALSE(memory->takes_holds());
      EXPECT_TRUE(fails_with(memory->share_segment(pool->segment_of(*sample.slot)),
                             ErrorCode::not_supported));
    }
    Link* const link = pair.a.link.get();
    ASSERT_TRUE(pair.turn_until([&] {
      const auto sent = link->prepare(sample.op, Deadline::never());
      return sent && *sent == Sent::done;
    }));
    show_and_ring({&link, 1});
    ASSERT_TRUE(pair.turn_until([&] { return sink.complete_count() == 1; }));
    EXPECT_EQ(sink.body(0), std::vector<std::byte>(kSampleBytes, std::byte{1}));
    EXPECT_EQ(pool->stats().holds, 0u);
    sample.slot.reset();
    EXPECT_EQ(pool->stats().slots.loaned_count, 0u);
  }
}

// Readers that lie --------------------------------------------------------------------------------

TEST(ShmPublishHostile, ReturnsThatAreNotInTheLedgerChangeNothing) {
  const auto pool = std::make_shared<PublishPool>(kCapBytes);
  RawShmPeer liar(getpid(), pool);
  RawShmPeer honest(getpid(), pool);
  const auto slot = pool->acquire(kSampleBytes).value();
  const SlotId id = slot->id();
  liar.give_back({id.segment, id.slot, id.generation});  // it has no hold yet
  EXPECT_TRUE(liar.end.link->collect_returns());
  for (RawShmPeer* peer : {&liar, &honest}) {
    Sample sample(slot, 1, 1);
    ASSERT_TRUE(peer->end.link->shared_memory()->share_segment(pool->segment_of(*slot)).value() ==
                Sent::done);
    ASSERT_EQ(peer->end.link->send(sample.op, Deadline::never()).value(), Sent::done);
  }
  EXPECT_EQ(pool->stats().holds, 2u);
  for (int i = 0; i < 3; ++i) liar.give_back({id.segment, id.slot, id.generation});
  liar.give_back({id.segment, id.slot, id.generation + 1});
  liar.give_back({id.segment, id.slot + 1, id.generation});
  liar.give_back({~0u, ~0u, ~0ull});
  EXPECT_TRUE(liar.end.link->collect_returns());
  EXPECT_EQ(pool->stats().holds, 1u) << "the other reader's";
  EXPECT_EQ(pool->stats().ignored_returns, 5u);
  EXPECT_EQ(liar.end.link->stats().slots.ignored_returns, 1u) << "of before its first hold";
}

// Owners that lie ---------------------------------------------------------------------------------

constexpr std::uint32_t kFirst = PublishPool::kFirstSegment;

void expect_violation_by(const Descriptor& descriptor, Writers writers, std::string_view text) {
  RawShmPeer peer;
  const auto segment = Segment::create(4 * 65536, writers).value();
  peer.announce(announcement(kFirst + 1, 65536, 4),
                {Segment::create(4 * 65536, Writers::maker_only).value()->fd()});
  peer.settle();
  EXPECT_FALSE(peer.end.link->ended());
  peer.announce(descriptor, {segment->fd()});
  peer.settle();
  expect_violation(peer.end, text, "mallory");
}

TEST(ShmPublishHostile, SharedSegmentsAreChecked) {
  expect_violation_by(announcement(kFirst, 65536, 4), Writers::maker_and_peer, "maker alone");
  expect_violation_by(announcement(kFirst, 65536, 5), Writers::maker_only, "announced were");
  expect_violation_by(announcement(kFirst, 65535, 4), Writers::maker_only, "malformed");
  expect_violation_by(announcement(kFirst, 1ull << 48, 4), Writers::maker_only, "malformed");
  expect_violation_by(announcement(kFirst, 65536, 0), Writers::maker_only, "malformed");
  expect_violation_by(announcement(kFirst + 1, 65536, 4), Writers::maker_only, "malformed");
}

TEST(ShmPublishHostile, SlotsOfASharedSegmentAreChecked) {
  for (const bool known : {true, false}) {
    RawShmPeer peer;
    peer.end.attach(1);
    peer.announce(announcement(kFirst, 65536, 4),
                  {Segment::create(4 * 65536, Writers::maker_only).value()->fd()});
    Descriptor message = slot_message(1, kSampleBytes);
    message.segment_or_inline_bytes = known ? kFirst : kFirst + 1;
    message.slot = known ? 4 : 0;
    peer.publish(message);
    peer.settle();
    expect_violation(peer.end, known ? "slot 4 of 4" : "was not announced", "mallory");
  }
}

// Views keep the owner's doorbell after the link here has ended.
TEST(ShmPublishReader, ViewsKeepTheDoorbell) {
  RawShmPeer owner;
  RecordingSink& sink = owner.end.attach(1);
  owner.announce(announcement(kFirst, 65536, 4),
                 {Segment::create(4 * 65536, Writers::maker_only).value()->fd()});
  Descriptor message = slot_message(1, kSampleBytes);
  message.segment_or_inline_bytes = kFirst;
  message.slot = 3;
  message.generation = 7;
  owner.publish(message);
  owner.settle();
  ASSERT_EQ(sink.received.size(), 1u);
  owner.end.link->close(Error{ErrorCode::context_closed, "test", "closed"});
  owner.mine().sleeping.store(SleepWord<>::kForReturns);
  std::uint64_t rung = 0;
  EXPECT_NE(read(owner.doorbell(), &rung, sizeof rung), ssize_t{sizeof rung});
  // Acts as a pipe does when the program takes the message; only the view outlives the link.
  sink.received[0].held.give_back();
  owner.end.link.reset();
  sink.drop_bodies();
  EXPECT_EQ(read(owner.doorbell(), &rung, sizeof rung), ssize_t{sizeof rung});
  EXPECT_EQ(rung, 1u);
  ASSERT_EQ(owner.theirs().returns.tail.load(), 1u);
  const ReturnEntry entry = owner.theirs().return_entries[0];
  EXPECT_EQ(entry.segment, kFirst);
  EXPECT_EQ(entry.slot, 3u);
  EXPECT_EQ(entry.generation, 7u);
}

}  // namespace
}  // namespace tendon::test
