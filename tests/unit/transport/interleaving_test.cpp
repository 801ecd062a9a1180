// SPDX-License-Identifier: Apache-2.0
// Every schedule of the shipped rings, doorbells and ledger in small programs. Planted faults show
// that the checker finds such faults. docs/protocol.md says which rule each model covers.
#include "support/interleaving.hpp"

#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/slot_pool.hpp"
#include "transport/shm/ring.hpp"

namespace tendon::v0::detail {
namespace {

using test::CheckedMemory;
using test::Interleavings;
using test::Order;
using Word = CheckedMemory::Word;
using Counters = RingCounters<CheckedMemory>;

/// Code without its barriers; the fault shows only where stores may be delayed.
struct NoBarrier : CheckedMemory {
  static void barrier() {}
};

template <class Ghost>
typename Interleavings<Ghost>::Outcome explore(
    std::string_view what, Order order, std::vector<typename Interleavings<Ghost>::Thread> threads,
    typename Interleavings<Ghost>::Invariant invariant) {
  Interleavings<Ghost> checker(order, std::move(threads), std::move(invariant));
  auto outcome = checker.explore();
  std::cout << what << (order == Order::sequential ? "" : ", with store buffers") << ": ";
  if (outcome.violation.empty())
    std::cout << outcome.schedules << " schedules through " << outcome.states << " states\n";
  else
    std::cout << "violated, " << outcome.violation.substr(0, outcome.violation.find('\n')) << "\n";
  return outcome;
}

/// A fault that a thread has detected itself.
struct Complaint {
  std::string text;
  void unless(bool good, std::string_view what) {
    if (!good && text.empty()) text = what;
  }
};
std::optional<std::string> nobody_complains(
    const std::vector<Interleavings<Complaint>::View>& views) {
  for (const auto& view : views)
    if (!view.ghost.text.empty()) return view.ghost.text;
  return std::nullopt;
}

constexpr Order kOrders[] = {Order::sequential, Order::store_buffer};

// Ring --------------------------------------------------------------------------------------------

struct Entry {
  std::uint64_t number = 0;
  std::uint64_t check = 0;
};
Entry entry_of(std::uint64_t number) { return {number, number + 100}; }

struct Ring {
  explicit Ring(std::size_t capacity) : entries(capacity) {}
  Counters counters;
  std::vector<Entry> entries;

  void push(RingProducer<Entry, CheckedMemory>& producer, const Entry& entry) {
    while (!producer.stage(entry))
      CheckedMemory::wait_while({{&counters.head, producer.tail() - entries.size()}});
  }
  Entry pop(RingConsumer<Entry, CheckedMemory>& consumer) {
    Entry entry;
    while (!consumer.pop(entry) && !consumer.corrupt())
      CheckedMemory::wait_while({{&counters.tail, consumer.head()}});
    return entry;
  }
};

Interleavings<Complaint>::Body consumer_of(Ring& ring, std::uint64_t count, std::uint64_t batch) {
  return [&ring, count, batch](Complaint& complaint) {
    RingConsumer<Entry, CheckedMemory> consumer(ring.counters, ring.entries);
    for (std::uint64_t i = 1; i <= count; ++i) {
      const Entry entry = ring.pop(consumer);
      complaint.unless(entry.number == i, "an entry was lost, doubled or overtaken");
      complaint.unless(entry.check == entry.number + 100, "a torn entry");
      if (i % batch == 0) consumer.release();
    }
    complaint.unless(!consumer.corrupt(), "an honest producer looked corrupt");
  };
}

Interleavings<Complaint>::Body producer_of(Ring& ring, std::uint64_t count, std::uint64_t batch) {
  return [&ring, count, batch](Complaint& complaint) {
    RingProducer<Entry, CheckedMemory> producer(ring.counters, ring.entries);
    for (std::uint64_t i = 1; i <= count; ++i) {
      ring.push(producer, entry_of(i));
      if (i % batch == 0 || i == count) producer.publish();
    }
    complaint.unless(!producer.corrupt(), "an honest consumer looked corrupt");
  };
}

TEST(InterleavingRing, AllEntriesInOrderWholeAndOnce) {
  for (const Order order : kOrders) {
    Ring ring(2);
    const auto outcome = explore<Complaint>(
        "ring, 3 entries through 2 places", order,
        {{"producer", producer_of(ring, 3, 1)}, {"consumer", consumer_of(ring, 3, 1)}},
        nobody_complains);
    EXPECT_EQ(outcome.violation, "");
    EXPECT_GT(outcome.schedules, 1000u);
  }
}

TEST(InterleavingRing, OtherCapacitiesAndBatches) {
  struct Case {
    std::size_t capacity;
    std::uint64_t count, publish, release;
  };
  for (const Order order : kOrders) {
    for (const Case& c : {Case{1, 4, 1, 1}, Case{2, 6, 2, 1}, Case{2, 6, 1, 2}, Case{4, 8, 3, 2}}) {
      Ring ring(c.capacity);
      const auto outcome = explore<Complaint>(
          "ring, " + std::to_string(c.count) + " entries through " + std::to_string(c.capacity) +
              " places, published by " + std::to_string(c.publish) + ", released by " +
              std::to_string(c.release),
          order,
          {{"producer", producer_of(ring, c.count, c.publish)},
           {"consumer", consumer_of(ring, c.count, c.release)}},
          nobody_complains);
      EXPECT_EQ(outcome.violation, "");
    }
  }
}

TEST(InterleavingRing, FindsPlantedFaults) {
  for (const Order order : kOrders) {
    Ring early(2);
    const auto published_first = [&early](Complaint&) {
      CheckedMemory::store_release(early.counters.tail, 1);
      CheckedMemory::write(early.entries[0], entry_of(1));
    };
    EXPECT_NE(
        explore<Complaint>("fault: published before written", order,
                           {{"producer", published_first}, {"consumer", consumer_of(early, 1, 1)}},
                           nobody_complains)
            .violation,
        "");

    Ring full(2);
    const auto overruns = [&full](Complaint&) {  // as if the ring had twice its places
      for (std::uint64_t i = 1; i <= 3; ++i) {
        CheckedMemory::write(full.entries[(i - 1) % 2], entry_of(i));
        CheckedMemory::store_release(full.counters.tail, i);
      }
    };
    EXPECT_NE(explore<Complaint>("fault: does not look for room", order,
                                 {{"producer", overruns}, {"consumer", consumer_of(full, 3, 1)}},
                                 nobody_complains)
                  .violation,
              "");

    Ring released(1);
    const auto releases_first = [&released](Complaint& complaint) {
      for (std::uint64_t i = 1; i <= 2; ++i) {
        CheckedMemory::wait_while({{&released.counters.tail, i - 1}});
        CheckedMemory::store_release(released.counters.head, i);
        const Entry entry = CheckedMemory::read(released.entries[0]);
        complaint.unless(entry.number == i && entry.check == i + 100, "a torn or later entry");
      }
    };
    EXPECT_NE(explore<Complaint>(
                  "fault: released before copied", order,
                  {{"producer", producer_of(released, 2, 1)}, {"consumer", releases_first}},
                  nobody_complains)
                  .violation,
              "");
  }
}

// Doorbell ----------------------------------------------------------------------------------------

enum class Sleeper { shipped, looks_no_more, announces_late };
enum class Ringer { shipped, looks_too_early };

/// One side that sleeps and the eventfd that wakes it.
struct Bell {
  Word sleeping;
  Word event;
};

// Takes `count` entries, and sleeps whenever there is none.
template <class Memory = CheckedMemory>
void take_asleep(Bell& bell, std::uint64_t count, Sleeper how,
                 RingConsumer<Entry, CheckedMemory>& consumer, Complaint& complaint) {
  SleepWord<Memory> my_word(bell.sleeping);
  for (std::uint64_t taken = 0; taken < count;) {
    Entry entry;
    if (consumer.pop(entry)) {
      ++taken;
      complaint.unless(entry.number == consumer.head(), "an entry was lost or overtaken");
      consumer.release();
      continue;
    }
    if (how == Sleeper::announces_late) {
      if (consumer.has_entry()) continue;
      my_word.announce(SleepWord<>::kForMessages);
    } else {
      my_word.announce(SleepWord<>::kForMessages);
      if (how != Sleeper::looks_no_more && consumer.has_entry()) {
        my_word.awake();
        continue;
      }
    }
    CheckedMemory::wait_until_rung(bell.event);
    my_word.awake();
  }
}

template <class Memory = CheckedMemory>
void push_and_ring(Ring& ring, Bell& bell, const Entry& entry, Ringer how,
                   RingProducer<Entry, CheckedMemory>& producer) {
  const SleepWord<Memory> my_word(bell.sleeping);
  ring.push(producer, entry);
  if (how == Ringer::shipped) producer.publish();
  const bool rings = my_word.asleep(SleepWord<>::kForMessages);
  if (how == Ringer::looks_too_early) producer.publish();
  if (rings) CheckedMemory::ring(bell.event);
}

template <class SleeperMemory = CheckedMemory, class RingerMemory = CheckedMemory>
std::string doorbell(std::string_view what, Order order, std::uint64_t count,
                     Sleeper sleeper = Sleeper::shipped, Ringer ringer = Ringer::shipped) {
  Ring ring(2);
  Bell bell;
  const auto sleeps = [&](Complaint& complaint) {
    RingConsumer<Entry, CheckedMemory> consumer(ring.counters, ring.entries);
    take_asleep<SleeperMemory>(bell, count, sleeper, consumer, complaint);
  };
  const auto rings = [&](Complaint&) {
    RingProducer<Entry, CheckedMemory> producer(ring.counters, ring.entries);
    for (std::uint64_t i = 1; i <= count; ++i)
      push_and_ring<RingerMemory>(ring, bell, entry_of(i), ringer, producer);
  };
  return explore<Complaint>(what, order, {{"sleeper", sleeps}, {"ringer", rings}}, nobody_complains)
      .violation;
}

TEST(InterleavingDoorbell, NobodySleepsBesideAnEntry) {
  for (const Order order : kOrders) {
    EXPECT_EQ(doorbell("doorbell, 1 entry", order, 1), "");
    EXPECT_EQ(doorbell("doorbell, 3 entries", order, 3), "");
  }
}

TEST(InterleavingDoorbell, BothSidesSleep) {
  for (const Order order : kOrders) {
    Ring there(1), back(1);
    Bell mine, theirs;
    constexpr std::uint64_t kRounds = 2;
    const auto asks = [&](Complaint& complaint) {
      RingProducer<Entry, CheckedMemory> producer(there.counters, there.entries);
      RingConsumer<Entry, CheckedMemory> consumer(back.counters, back.entries);
      for (std::uint64_t i = 1; i <= kRounds; ++i) {
        push_and_ring(there, theirs, entry_of(i), Ringer::shipped, producer);
        take_asleep(mine, 1, Sleeper::shipped, consumer, complaint);
      }
    };
    const auto answers = [&](Complaint& complaint) {
      RingProducer<Entry, CheckedMemory> producer(back.counters, back.entries);
      RingConsumer<Entry, CheckedMemory> consumer(there.counters, there.entries);
      for (std::uint64_t i = 1; i <= kRounds; ++i) {
        take_asleep(theirs, 1, Sleeper::shipped, consumer, complaint);
        push_and_ring(back, mine, entry_of(i), Ringer::shipped, producer);
      }
    };
    EXPECT_EQ(explore<Complaint>("doorbells, both sides sleep", order,
                                 {{"a", asks}, {"b", answers}}, nobody_complains)
                  .violation,
              "");
  }
}

TEST(InterleavingDoorbell, FindsPlantedFaults) {
  const auto lost = [](const std::string& violation) {
    return violation.find("sleeper waits for ever") == 0;
  };
  for (const Order order : kOrders) {
    EXPECT_TRUE(lost(doorbell("fault: no second look", order, 2, Sleeper::looks_no_more)));
    EXPECT_TRUE(
        lost(doorbell("fault: announced after the look", order, 2, Sleeper::announces_late)));
    EXPECT_TRUE(lost(doorbell("fault: looked before publishing", order, 2, Sleeper::shipped,
                              Ringer::looks_too_early)));
  }
  // Both sides need their barrier, because without it others may see another order than that of the
  // program.
  EXPECT_TRUE(lost(doorbell<NoBarrier, CheckedMemory>("fault: sleeper without barrier",
                                                      Order::store_buffer, 2)));
  EXPECT_TRUE(lost(
      doorbell<CheckedMemory, NoBarrier>("fault: ringer without barrier", Order::store_buffer, 2)));
  EXPECT_EQ((doorbell<NoBarrier, NoBarrier>("no barriers, sequential", Order::sequential, 2)), "")
      << "sequential consistency needs none; if this fails the model is broken";
}

// Room --------------------------------------------------------------------------------------------

enum class RoomWaiter { shipped, takes_a_newer_head };

// A producer that sleeps while its ring is full. The consumer checks the sleep word once per `step`
// released places, as the link does.
std::string room(const std::string& what, Order order, std::size_t capacity, std::uint64_t step,
                 std::uint64_t count, RoomWaiter how = RoomWaiter::shipped) {
  Ring ring(capacity);
  Bell bell;
  const auto pushes = [&](Complaint&) {
    RingProducer<Entry, CheckedMemory> producer(ring.counters, ring.entries);
    SleepWord<CheckedMemory> my_word(bell.sleeping);
    for (std::uint64_t i = 1; i <= count;) {
      if (!producer.full()) {
        (void)producer.stage(entry_of(i++));
        producer.publish();
        continue;
      }
      const std::uint64_t blocked_at =
          how == RoomWaiter::shipped ? producer.seen_head() : producer.consumed();
      my_word.announce(SleepWord<>::kForMessages);
      if (CheckedMemory::load_acquire(ring.counters.head) == blocked_at)
        CheckedMemory::wait_until_rung(bell.event);
      my_word.awake();
    }
  };
  const auto takes = [&](Complaint& complaint) {
    RingConsumer<Entry, CheckedMemory> consumer(ring.counters, ring.entries);
    const SleepWord<CheckedMemory> my_word(bell.sleeping);
    for (std::uint64_t i = 1; i <= count; ++i) {
      complaint.unless(ring.pop(consumer).number == i, "an entry was lost or overtaken");
      consumer.release();
      if (i % step == 0 && my_word.asleep(SleepWord<>::kForMessages))
        CheckedMemory::ring(bell.event);
    }
  };
  return explore<Complaint>(what, order, {{"producer", pushes}, {"consumer", takes}},
                            nobody_complains)
      .violation;
}

TEST(InterleavingRoom, NobodySleepsBesideAFreePlace) {
  for (const Order order : kOrders) {
    EXPECT_EQ(room("room, looked for at every place", order, 1, 1, 3), "");
    const std::uint64_t count = order == Order::sequential ? 5 : 3;
    EXPECT_EQ(room("room, looked for at every second place", order, 2, 2, count), "");
  }
}

TEST(InterleavingRoom, FindsPlantedFaults) {
  EXPECT_NE(room("fault: waits for another head than a newer one", Order::sequential, 1, 1, 3,
                 RoomWaiter::takes_a_newer_head),
            "");
  EXPECT_NE(room("fault: looks less often than the ring is emptied", Order::sequential, 1, 2, 3),
            "");
}

// Slots -------------------------------------------------------------------------------------------

struct SentMessage {
  std::uint64_t slot = 0;
  std::uint64_t generation = 0;
  std::uint64_t content = 0;
};
struct Returned {
  std::uint64_t slot = 0;
  std::uint64_t generation = 0;
};

constexpr std::size_t kMostSlots = 2;
enum class Network { good, may_fail };
enum class Owner {
  shipped,
  frees_at_end_of_stream,
  ignores_generations,
  releases_after_publishing
};

struct SlotGhost {
  Complaint complaint;
  std::array<std::uint64_t, kMostSlots>
      holds{};  // receiver: the generation it holds and did not return
  std::array<std::uint64_t, kMostSlots> latest{};  // owner: the last generation it assigned
  std::array<bool, kMostSlots> writes{};           // owner: loaned, being written
  std::uint64_t with_peer = 0;                     // owner: sent or quarantined, by the ledger
};

struct SlotModel {
  explicit SlotModel(std::size_t slots) : slot_count(slots), messages(4), returns(4) {}
  const std::size_t slot_count;
  Counters message_counters, return_counters;
  std::vector<SentMessage> messages;
  std::vector<Returned> returns;
  std::array<Word, kMostSlots> content;  // stands for the bytes of a slot
  Word peer_ended;                       // the pidfd
  Word link_failed;                      // EOF, a lapsed lease
};

void own(SlotModel& shared, std::uint64_t count, Network network, Owner how, SlotGhost& ghost) {
  SlotPool pool("model", shared.slot_count * SlotPool::kSmallestSlotBytes);
  RingProducer<SentMessage, CheckedMemory> out(shared.message_counters, shared.messages);
  RingConsumer<Returned, CheckedMemory> in(shared.return_counters, shared.returns);
  std::uint64_t ended = 0, failed = 0;
  const auto look = [&] {
    const SlotPoolStats stats = pool.stats();
    ghost.with_peer = stats.sent_count + stats.quarantined_count;
  };
  const auto look_around = [&] {
    Returned back;
    const std::uint64_t before = in.head();
    while (in.pop(back)) {
      if (how == Owner::ignores_generations && back.slot < kMostSlots)
        back.generation = ghost.latest[back.slot];
      pool.ledger().take_return({0, static_cast<std::uint32_t>(back.slot), back.generation});
      look();
    }
    if (in.head() != before) in.release();
    if (network == Network::may_fail) failed = CheckedMemory::load_acquire(shared.link_failed);
    ended = CheckedMemory::load_acquire(shared.peer_ended);
    if (ended != 0)
      pool.ledger().free_sent();
    else if (failed != 0 && how == Owner::frees_at_end_of_stream)
      pool.ledger().free_sent();
    else if (failed != 0)
      pool.ledger().quarantine_sent();
    look();
  };
  const auto wait = [&] {
    CheckedMemory::wait_while({{&shared.return_counters.tail, in.head()},
                               {&shared.peer_ended, ended},
                               {&shared.link_failed, failed}});
  };
  for (std::uint64_t i = 1; i <= count; ++i) {
    look_around();
    auto slot = pool.acquire(1);
    while (!slot && ended == 0) {
      wait();
      look_around();
      slot = pool.acquire(1);
    }
    if (!slot) return ghost.complaint.unless(false, "the peer is dead and its slots are not free");
    const SlotId id = slot->id;
    ghost.latest[id.slot] = id.generation;
    ghost.writes[id.slot] = true;
    CheckedMemory::store_relaxed(shared.content[id.slot], 10 * i);
    if (failed != 0 || ended != 0) {  // no link to send on; the memory is used for something else
      ghost.writes[id.slot] = false;
      pool.release(id);
      continue;
    }
    ghost.complaint.unless(pool.ledger().mark_sent(id), "a fresh loan cannot be sent");
    ghost.writes[id.slot] = false;
    look();
    ghost.complaint.unless(out.stage({id.slot, id.generation, 10 * i}), "more messages than slots");
    out.publish();
    if (how == Owner::releases_after_publishing) {  // as a send that timed out too late
      pool.ledger().unmark_sent(id);
      pool.release(id);
      look();
    }
  }
  look_around();
  while (pool.stats().sent_count + pool.stats().quarantined_count != 0) {
    wait();
    look_around();
  }
  for (std::size_t i = 0; i < shared.slot_count; ++i)
    ghost.complaint.unless(pool.acquire(1).has_value(), "a slot is lost for ever");
}

/// How a receiver returns a slot: correctly; twice; correctly, after an entry about an earlier use;
/// correctly, before an entry about a slot that does not exist; or never.
enum class Return { once, twice, after_a_stale_one, before_a_forged_one, never };

void receive(SlotModel& shared, std::uint64_t count, const std::vector<Return>& manners,
             SlotGhost& ghost) {
  RingConsumer<SentMessage, CheckedMemory> in(shared.message_counters, shared.messages);
  RingProducer<Returned, CheckedMemory> out(shared.return_counters, shared.returns);
  const auto give_back = [&](std::uint64_t slot, std::uint64_t generation) {
    if (out.stage({slot, generation})) out.publish();
  };
  for (std::uint64_t i = 1; i <= count; ++i) {
    SentMessage sent;
    while (!in.pop(sent)) {
      CheckedMemory::wait_while(
          {{&shared.message_counters.tail, in.head()}, {&shared.link_failed, 0}});
      if (CheckedMemory::load_acquire(shared.link_failed) != 0 && !in.has_entry()) return;
    }
    in.release();
    ghost.holds[sent.slot] = sent.generation;
    const Return manner =
        manners.size() == 1 ? manners[0] : manners[CheckedMemory::choose(manners.size())];
    if (manner == Return::after_a_stale_one) give_back(sent.slot, sent.generation - 1);
    ghost.complaint.unless(CheckedMemory::load_relaxed(shared.content[sent.slot]) == sent.content,
                           "a slot holds something else than was sent");
    if (manner == Return::never) continue;
    ghost.holds[sent.slot] = 0;
    give_back(sent.slot, sent.generation);
    if (manner == Return::twice) give_back(sent.slot, sent.generation);
    if (manner == Return::before_a_forged_one) give_back(7, 1);
  }
}

std::optional<std::string> held_slots_are_left_alone(
    const std::vector<Interleavings<SlotGhost>::View>& views) {
  const SlotGhost& owner = views[0].ghost;
  const SlotGhost& receiver = views[1].ghost;
  for (const auto& view : views)
    if (!view.ghost.complaint.text.empty() && !view.dead) return view.ghost.complaint.text;
  if (views[1].dead || views[1].finished) return std::nullopt;
  std::uint64_t held = 0;
  for (std::size_t s = 0; s < kMostSlots; ++s) {
    if (receiver.holds[s] == 0) continue;
    ++held;
    if (owner.writes[s])
      return "the owner writes slot " + std::to_string(s) + ", which a live receiver holds";
    if (owner.latest[s] != receiver.holds[s]) return "a held slot was given out again";
  }
  if (held > owner.with_peer) return "the ledger calls a slot free that a live receiver holds";
  return std::nullopt;
}

struct SlotCase {
  std::string what;
  std::size_t slots;
  std::uint64_t messages;
  std::vector<Return> manners = {Return::once};
  Network network = Network::good;
  Owner owner = Owner::shipped;
  Order order = Order::sequential;
};

std::string explore(const SlotCase& c) {
  SlotModel shared(c.slots);
  std::vector<Interleavings<SlotGhost>::Thread> threads = {
      {"owner", [&](SlotGhost& ghost) { own(shared, c.messages, c.network, c.owner, ghost); },
       nullptr},
      {"receiver", [&](SlotGhost& ghost) { receive(shared, c.messages, c.manners, ghost); },
       &shared.peer_ended}};
  if (c.network == Network::may_fail) {
    threads.push_back({"network",
                       [&](SlotGhost&) { CheckedMemory::store_release(shared.link_failed, 1); },
                       nullptr});
  }
  return explore<SlotGhost>(c.what, c.order, std::move(threads), held_slots_are_left_alone)
      .violation;
}

// In all of these the receiver may die before any access.
TEST(InterleavingSlots, HeldSlotsAreLeftAloneAndDeathFreesAll) {
  EXPECT_EQ(explore(SlotCase{.what = "1 slot, 3 messages", .slots = 1, .messages = 3}), "");
  EXPECT_EQ(explore(SlotCase{.what = "2 slots, 3 messages", .slots = 2, .messages = 3}), "");
  EXPECT_EQ(
      explore(SlotCase{
          .what = "1 slot, 2 messages", .slots = 1, .messages = 2, .order = Order::store_buffer}),
      "");
}

TEST(InterleavingSlots, ReturnsThatAreNotInTheLedgerChangeNothing) {
  const std::vector<std::pair<std::string, Return>> manners = {
      {"twice", Return::twice},
      {"after a stale one", Return::after_a_stale_one},
      {"before a forged one", Return::before_a_forged_one}};
  for (const auto& [name, manner] : manners) {
    EXPECT_EQ(explore(SlotCase{.what = "1 slot, 2 messages, returned " + name,
                               .slots = 1,
                               .messages = 2,
                               .manners = {manner}}),
              "");
  }
  EXPECT_EQ(explore(SlotCase{.what = "2 slots, 2 messages, returned or kept",
                             .slots = 2,
                             .messages = 2,
                             .manners = {Return::once, Return::never}}),
            "");
}

TEST(InterleavingSlots, FailedLinkIsNoProofOfDeath) {
  EXPECT_EQ(explore(SlotCase{.what = "1 slot, 2 messages, the link may fail",
                             .slots = 1,
                             .messages = 2,
                             .network = Network::may_fail}),
            "");
}

TEST(InterleavingSlots, FindsPlantedFaults) {
  EXPECT_NE(explore(SlotCase{.what = "fault: frees at end of stream",
                             .slots = 1,
                             .messages = 2,
                             .network = Network::may_fail,
                             .owner = Owner::frees_at_end_of_stream}),
            "");
  EXPECT_NE(explore(SlotCase{.what = "fault: ignores generations",
                             .slots = 1,
                             .messages = 2,
                             .manners = {Return::after_a_stale_one},
                             .owner = Owner::ignores_generations}),
            "");
  EXPECT_NE(explore(SlotCase{.what = "fault: releases after publishing",
                             .slots = 1,
                             .messages = 2,
                             .owner = Owner::releases_after_publishing}),
            "");
}

}  // namespace
}  // namespace tendon::v0::detail
