// SPDX-License-Identifier: Apache-2.0
// A shm link whose peer writes arbitrary bytes into rings, arena, segments and socket. The peer is
// of the same user, so it can harm its own link; it must neither do more harm nor make anybody
// wait.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include <functional>
#include <tendon/session/limits.hpp>

#include "raw_shm_peer.hpp"
#include "support/child.hpp"

namespace tendon::test {
namespace {

constexpr std::uint64_t kSlotBytes = 64 * 1024;
constexpr std::uint32_t kSlotCount = 4;

void expect_violation(const RawShmPeer& peer, std::string_view text) {
  expect_violation(peer.end, text, "mallory");
}

Descriptor inline_message(std::uint64_t sequence, std::uint32_t size_bytes) {
  Descriptor descriptor = slot_message(sequence, size_bytes);
  descriptor.flags = Descriptor::kInline;
  descriptor.segment_or_inline_bytes = size_bytes;
  descriptor.generation = 0;
  return descriptor;
}

struct BadDescriptor {
  const char* name;
  std::function<Descriptor()> make;
  const char* says;
};

class ShmRefusesDescriptor : public testing::TestWithParam<BadDescriptor> {};

// One message in the arena and one in a slot arrive before the bad one, and are kept.
TEST_P(ShmRefusesDescriptor, AndNamesWhatIsWrong) {
  RawShmPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  peer.announce(announcement(0, kSlotBytes, kSlotCount),
                {peer.segment_fd(kSlotBytes * kSlotCount)});
  peer.publish(inline_message(1, 5));
  Descriptor last_slot = slot_message(2, kSlotBytes);
  last_slot.slot = kSlotCount - 1;
  peer.publish(last_slot);
  peer.publish(GetParam().make());
  peer.settle();
  expect_violation(peer, GetParam().says);
  ASSERT_EQ(sink.received.size(), 2u);
  EXPECT_EQ(sink.body(1), std::vector<std::byte>(kSlotBytes));
  EXPECT_EQ(sink.failures.size(), 1u);
  OutgoingMessage after(1, 1, 100, 1);
  EXPECT_TRUE(fails_with(peer.end.link->send(after.op(), Deadline::never()),
                         ErrorCode::protocol_violation, "mallory"));
}

template <class Change>
std::function<Descriptor()> changed(Descriptor descriptor, Change change) {
  return [descriptor, change]() mutable {
    change(descriptor);
    return descriptor;
  };
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ShmRefusesDescriptor,
    testing::Values(
        BadDescriptor{"slot_behind_the_last",
                      changed(slot_message(3, 100), [](Descriptor& d) { d.slot = kSlotCount; }),
                      "slot 4 of 4"},
        BadDescriptor{"slot_far_out",
                      changed(slot_message(3, 100), [](Descriptor& d) { d.slot = ~0u; }),
                      "slot 4294967295 of 4"},
        BadDescriptor{"more_than_the_slot", [] { return slot_message(3, kSlotBytes + 1); },
                      "65537 bytes of 65536"},
        BadDescriptor{
            "values_make_it_more_than_the_slot",
            changed(slot_message(3, kSlotBytes), [](Descriptor& d) { d.values_bytes = 1; }),
            "65537 bytes of 65536"},
        BadDescriptor{"offset_in_a_slot",
                      changed(slot_message(3, 100), [](Descriptor& d) { d.offset = 64; }),
                      "slot 0"},
        BadDescriptor{
            "segment_not_announced",
            changed(slot_message(3, 100), [](Descriptor& d) { d.segment_or_inline_bytes = 1; }),
            "segment 1 was not announced"},
        BadDescriptor{
            "segment_far_out",
            changed(slot_message(3, 100), [](Descriptor& d) { d.segment_or_inline_bytes = ~0u; }),
            "segment 4294967295 was not announced"},
        BadDescriptor{"behind_the_arena",
                      changed(inline_message(3, 100),
                              [](Descriptor& d) { d.offset = ControlBlock::kArenaBytes - 99; }),
                      "outside the arena"},
        BadDescriptor{"far_behind_the_arena",
                      changed(inline_message(3, 100),
                              [](Descriptor& d) { d.offset = ~std::uint64_t{0} - 50; }),
                      "outside the arena"},
        BadDescriptor{"above_the_cap", [] { return slot_message(3, RawShmPeer::kCapBytes + 1); },
                      "above the link's cap"},
        BadDescriptor{
            "payload_that_overflows",
            changed(slot_message(3, ~std::uint64_t{0}), [](Descriptor& d) { d.values_bytes = 2; }),
            "payload above the link's cap"},
        BadDescriptor{"announced_in_the_ring",
                      [] { return announcement(1, kSlotBytes, kSlotCount); },
                      "a segment announced in the ring"},
        BadDescriptor{"unknown_kind",
                      changed(inline_message(3, 5), [](Descriptor& d) { d.kind = MessageKind{0}; }),
                      "unknown message kind"},
        BadDescriptor{"reserved",
                      changed(inline_message(3, 5), [](Descriptor& d) { d.reserved[0] = 1; }),
                      "reserved"}),
    [](const auto& tested) { return tested.param.name; });

TEST(ShmHostile, ABodyUpToTheEndOfTheArenaIsFine) {
  RawShmPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  Descriptor last = inline_message(1, 100);
  last.offset = ControlBlock::kArenaBytes - 100;
  peer.mine().arena.back() = std::byte{9};
  peer.publish(last);
  peer.settle();
  ASSERT_EQ(sink.received.size(), 1u);
  EXPECT_EQ(sink.body(0).back(), std::byte{9});
  EXPECT_FALSE(peer.end.link->ended());
}

struct BadAnnouncement {
  const char* name;
  Descriptor announced;
  std::vector<std::uint64_t> segment_bytes;  ///< of the memory that is passed beside it
  const char* says;
};

Descriptor with_kind(Descriptor descriptor, MessageKind kind) {
  descriptor.kind = kind;
  return descriptor;
}

class ShmRefusesAnnouncement : public testing::TestWithParam<BadAnnouncement> {};

TEST_P(ShmRefusesAnnouncement, AndNamesThePeer) {
  RawShmPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  std::vector<int> fds;
  for (const std::uint64_t size_bytes : GetParam().segment_bytes)
    fds.push_back(peer.segment_fd(size_bytes));
  peer.announce(GetParam().announced, fds);
  peer.settle();
  expect_violation(peer, GetParam().says);
  EXPECT_EQ(sink.failures.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ShmRefusesAnnouncement,
    testing::Values(
        BadAnnouncement{"smaller_than_said",
                        announcement(0, kSlotBytes, 4),
                        {kSlotBytes * 3},
                        "announced were 262144"},
        BadAnnouncement{"larger_than_said",
                        announcement(0, kSlotBytes, 4),
                        {kSlotBytes * 5},
                        "announced were 262144"},
        BadAnnouncement{"no_slots", announcement(0, kSlotBytes, 0), {kSlotBytes}, "malformed"},
        BadAnnouncement{"too_many_slots",
                        announcement(0, 4096, SlotPool::kMaxSlots + 1),
                        {4096 * (SlotPool::kMaxSlots + 1)},
                        "malformed"},
        BadAnnouncement{
            "no_power_of_two", announcement(0, 3 * 4096, 4), {3 * 4096 * 4}, "malformed"},
        BadAnnouncement{"slots_of_no_bytes", announcement(0, 0, 4), {4096}, "malformed"},
        BadAnnouncement{"slots_too_small", announcement(0, 2048, 4), {8192}, "malformed"},
        BadAnnouncement{"slots_above_the_cap",
                        announcement(0, RawShmPeer::kCapBytes * 2, 1),
                        {4096},
                        "malformed"},
        BadAnnouncement{"product_that_overflows",
                        announcement(0, std::uint64_t{1} << 63, 2),
                        {4096},
                        "malformed"},
        BadAnnouncement{
            "number_left_out", announcement(1, kSlotBytes, 1), {kSlotBytes}, "malformed"},
        BadAnnouncement{"no_memory", announcement(0, kSlotBytes, 1), {}, "malformed"},
        BadAnnouncement{
            "two_memories", announcement(0, kSlotBytes, 1), {kSlotBytes, kSlotBytes}, "malformed"},
        // More than the link has room for: the kernel cuts these although descriptors are not
        // short.
        BadAnnouncement{"nine_memories", announcement(0, 4096, 1),
                        std::vector<std::uint64_t>(9, 4096), "malformed"},
        BadAnnouncement{"another_kind",
                        with_kind(announcement(0, kSlotBytes, 1), MessageKind::data),
                        {kSlotBytes},
                        "malformed"}),
    [](const auto& tested) { return tested.param.name; });

TEST(ShmHostile, HalfAnAnnouncementIsRefused) {
  RawShmPeer peer;
  const Descriptor half = announcement(0, kSlotBytes, 1);
  peer.tell(std::as_bytes(std::span(&half, 1)).first(32), {peer.segment_fd(kSlotBytes)});
  peer.settle();
  expect_violation(peer, "malformed");
}

TEST(ShmHostile, TheSameSegmentAnnouncedTwiceIsRefused) {
  RawShmPeer peer;
  peer.announce(announcement(0, kSlotBytes, 1), {peer.segment_fd(kSlotBytes)});
  peer.settle();
  ASSERT_FALSE(peer.error().has_value()) << peer.error()->message();
  peer.announce(announcement(0, kSlotBytes, 1), {peer.segment_fd(kSlotBytes)});
  peer.settle();
  expect_violation(peer, "malformed");
}

TEST(ShmHostile, MoreSegmentsThanThereMayBeAreRefused) {
  RawShmPeer peer;
  for (std::uint32_t id = 0; id < SlotPool::kMaxSegments; ++id) {
    peer.announce(announcement(id, 4096, 1), {peer.segment_fd(4096)});
    peer.settle();
  }
  ASSERT_FALSE(peer.error().has_value()) << peer.error()->message();
  peer.announce(announcement(SlotPool::kMaxSegments, 4096, 1), {peer.segment_fd(4096)});
  peer.settle();
  expect_violation(peer, "malformed");
}

TEST(ShmHostile, MemoryThatThePeerCanShrinkIsRefused) {
  RawShmPeer peer;
  const OwnedFd unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), kSlotBytes), 0);
  peer.announce(announcement(0, kSlotBytes, 1), {unsealed.get()});
  peer.settle();
  expect_violation(peer, "not sealed");
}

// Counters

TEST(ShmHostile, ATailThatJumpsAheadOrBackIsRefused) {
  for (const std::uint64_t tail : {ControlBlock::kMessageCount + 2, ~std::uint64_t{0},
                                   std::uint64_t{1} << 63, std::uint64_t{0}}) {
    SCOPED_TRACE(tail);
    RawShmPeer peer;
    RecordingSink& sink = peer.end.attach(1);
    peer.publish(inline_message(1, 5));
    peer.settle();
    ASSERT_EQ(sink.received.size(), 1u);
    peer.mine().messages.tail = tail;
    peer.settle();
    expect_violation(peer, "counters");
    EXPECT_EQ(sink.received.size(), 1u);
  }
}

TEST(ShmHostile, ReturnsThatJumpAreRefusedAndFreeNothing) {
  for (const std::uint64_t tail : {ControlBlock::kReturnCount + 1, ~std::uint64_t{0}}) {
    SCOPED_TRACE(tail);
    RawShmPeer peer;
    OutgoingMessage first(1, 1, 100'000, 1);
    ASSERT_TRUE(succeeds(peer.end.link->send(first.op(), Deadline::never())));
    peer.mine().returns.tail = tail;
    OutgoingMessage second(1, 2, 100'000, 2);
    (void)peer.end.link->send(second.op(), Deadline::never());
    peer.settle();
    expect_violation(peer, "counters");
    EXPECT_GE(peer.end.link->stats().slots.quarantined_count, 1u);
  }
}

// Sends small messages until none fits: the ring or the arena is full, and the link reads the
// counter of what the peer consumed.
TEST(ShmHostile, AHeadThatJumpsIsRefusedWhenThereIsNoRoom) {
  for (const std::uint64_t size_bytes : {std::uint64_t{1}, kMaxInlineBytes}) {
    for (const std::uint64_t head : {ControlBlock::kMessageCount * 2, ~std::uint64_t{0}}) {
      SCOPED_TRACE(std::to_string(size_bytes) + " bytes, head " + std::to_string(head));
      RawShmPeer peer;
      peer.theirs().messages.head = head;
      bool sent = true;
      for (std::uint64_t n = 1; sent && n <= ControlBlock::kMessageCount + 1; ++n) {
        OutgoingMessage message(1, n, size_bytes, n);
        const auto done = peer.end.link->send(message.op(), Deadline::never());
        sent = done && *done == Sent::done;
      }
      ASSERT_FALSE(sent);
      peer.end.poll();
      expect_violation(peer, "counters");
    }
  }
}

// Returns

TEST(ShmHostile, ReturnsThatAreNotInTheLedgerFreeNothing) {
  RawShmPeer peer;
  OutgoingMessage message(1, 1, 100'000, 1);
  ASSERT_TRUE(succeeds(peer.end.link->send(message.op(), Deadline::never())));
  const Descriptor sent = peer.theirs().message_entries[0];
  const ReturnEntry right{sent.segment_or_inline_bytes, sent.slot, sent.generation};
  auto wrong = [&](auto change) {
    ReturnEntry entry = right;
    change(entry);
    peer.give_back(entry);
  };
  wrong([](ReturnEntry& e) { ++e.generation; });
  wrong([](ReturnEntry& e) { --e.generation; });
  wrong([](ReturnEntry& e) { e.generation = ~std::uint64_t{0}; });
  wrong([](ReturnEntry& e) { ++e.slot; });
  wrong([](ReturnEntry& e) { e.slot = ~0u; });
  wrong([](ReturnEntry& e) { ++e.segment; });
  wrong([](ReturnEntry& e) { e.segment = ~0u; });
  peer.end.link->waiting_for_returns = 1;
  peer.settle();
  SlotPoolStats slots = peer.end.link->stats().slots;
  EXPECT_EQ(slots.ignored_returns, 7u);
  EXPECT_EQ(slots.sent_count, 1u) << "the peer still has it";
  peer.give_back(right);
  peer.give_back(right);
  peer.settle();
  slots = peer.end.link->stats().slots;
  EXPECT_EQ(slots.ignored_returns, 8u) << "a second return of the same use";
  EXPECT_EQ(slots.sent_count, 0u);
  EXPECT_FALSE(peer.end.link->ended());
}

// Quarantine: the end of a link does not prove that nobody writes to its slots any more.

/// A process that does nothing until it is killed.
class Idler {
 public:
  Idler() : pid_(fork()) {
    while (pid_ == 0) pause();
  }
  Idler(const Idler&) = delete;
  Idler& operator=(const Idler&) = delete;
  ~Idler() { end(); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    wait_for(std::exchange(pid_, -1));
  }

 private:
  pid_t pid_;
};

struct WayToEnd {
  const char* name;
  std::function<void(RawShmPeer&)> end;
};

class ShmQuarantine : public testing::TestWithParam<WayToEnd> {};

TEST_P(ShmQuarantine, HoldsWhatThePeerHadUntilItIsProvedDead) {
  Idler process;
  RawShmPeer peer(process.pid());
  Link& link = *peer.end.link;
  for (std::uint64_t n = 1; n <= 3; ++n) {
    OutgoingMessage message(1, n, 100'000, n);
    ASSERT_TRUE(succeeds(link.send(message.op(), Deadline::never())));
  }
  const Descriptor first = peer.theirs().message_entries[0];
  GetParam().end(peer);
  peer.settle();
  ASSERT_TRUE(link.ended());
  SlotPoolStats slots = link.stats().slots;
  EXPECT_EQ(slots.quarantined_count, 3u);
  EXPECT_EQ(slots.quarantined_bytes, 3 * SlotPool::slot_bytes_for(100'000));
  EXPECT_EQ(slots.sent_count, 0u);
  EXPECT_FALSE(link.acquire(100'000));
  // The word of a peer that ended its link frees nothing either.
  peer.give_back({first.segment_or_inline_bytes, first.slot, first.generation});
  peer.settle();
  EXPECT_EQ(link.stats().slots.quarantined_count, 3u);

  process.end();
  EXPECT_TRUE(eventually([&] { return link.stats().slots.quarantined_count == 0; },
                         [&] { peer.reactor.turn(1); }));
  EXPECT_EQ(peer.end.observer.ended_count, 1) << "it ended before";
  EXPECT_EQ(peer.reactor.watched_count(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, ShmQuarantine,
    testing::Values(WayToEnd{"nonsense",
                             [](RawShmPeer& peer) { peer.mine().messages.tail = ~0ull; }},
                    WayToEnd{"hang_up", [](RawShmPeer& peer) { peer.hang_up(); }},
                    WayToEnd{"goodbye",
                             [](RawShmPeer& peer) {
                               Descriptor goodbye;
                               goodbye.kind = MessageKind::goodbye;
                               peer.publish(goodbye);
                             }}),
    [](const auto& tested) { return std::string(tested.param.name); });

// Doorbell

// The description is shared: flags that the peer sets there hold for the link's descriptor too.
TEST(ShmHostile, AFullDoorbellThatBlocksDoesNotHoldTheSender) {
  RawShmPeer peer;
  ASSERT_EQ(fcntl(peer.doorbell(), F_SETFL, fcntl(peer.doorbell(), F_GETFL) & ~O_NONBLOCK), 0);
  const std::uint64_t brim = ~std::uint64_t{0} - 1;
  ASSERT_EQ(write(peer.doorbell(), &brim, sizeof brim), static_cast<ssize_t>(sizeof brim));
  peer.mine().sleeping = SleepWord<>::kForMessages | SleepWord<>::kForReturns;
  OutgoingMessage message(1, 1, 100, 1);
  EXPECT_TRUE(succeeds(peer.end.link->send(message.op(), Deadline::never())));
  EXPECT_TRUE(message.op().done);
  EXPECT_EQ(peer.end.link->stats().doorbells, 1u);
}

TEST(ShmHostile, ADoorbellThatBlocksIsRefusedAtOnce) {
  RawShmPeer peer;
  SocketPair sockets = make_sockets(AF_UNIX);
  ShmLinkOptions options = peer.options(std::move(sockets.a));
  options.peer_doorbell = OwnedFd(eventfd(0, EFD_CLOEXEC));
  EXPECT_TRUE(
      fails_with(make_shm_link(std::move(options)), ErrorCode::protocol_violation, "mallory"));
}

// A hostile peer does not disturb another link in the same reactor.
TEST(ShmHostile, AnotherLinkGoesOn) {
  LinkPair others;
  shm_factory().make(others, RawShmPeer::kCapBytes);
  RecordingSink& sink = others.b.attach(1);
  RawShmPeer peer;
  peer.mine().messages.tail = ~std::uint64_t{0};
  peer.settle();
  expect_violation(peer, "counters");
  OutgoingMessage message(1, 1, 100'000, 1);
  others.send(others.a, message);
  others.settle();
  ASSERT_EQ(sink.received.size(), 1u);
  EXPECT_EQ(sink.body(0), message.expected());
}

}  // namespace
}  // namespace tendon::test
