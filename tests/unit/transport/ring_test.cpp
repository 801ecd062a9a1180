// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/ring.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/fd.hpp"
#include "memory/segment.hpp"

namespace tendon::v0::detail {
namespace {

/// As large as a message descriptor; every word shows its entry.
struct Entry {
  std::array<std::uint64_t, 8> words{};
  bool operator==(const Entry&) const = default;
};
Entry entry_of(std::uint64_t number) {
  Entry entry;
  for (std::size_t i = 0; i < entry.words.size(); ++i) entry.words[i] = number * 8 + i;
  return entry;
}

using Counters = RingCounters<SharedMemoryPolicy>;
using Producer = RingProducer<Entry>;
using Consumer = RingConsumer<Entry>;

struct Ring {
  explicit Ring(std::size_t capacity) : entries(capacity) {}
  Counters counters;
  std::vector<Entry> entries;
  Producer producer{counters, entries};
  Consumer consumer{counters, entries};
};

/// Bounds a stress test: `most` entries, or a limited time on a busy machine. It bounds the effort
/// only; no test result depends on it.
class Effort {
 public:
  explicit Effort(std::uint64_t most) : most_(most) {}
  [[nodiscard]] bool more(std::uint64_t done) const {
    return done < 100 || (done < most_ && std::chrono::steady_clock::now() < end_);
  }

 private:
  const std::uint64_t most_;
  const std::chrono::steady_clock::time_point end_ =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
};
constexpr std::uint64_t kMany = 100'000;
constexpr std::uint64_t kLast = ~std::uint64_t{0};  // the number of the entry that ends a stream

/// Spins a little, because the other thread often answers at once, then yields the core.
class Backoff {
 public:
  void pause() {
    if (++rounds_ % 256 == 0) std::this_thread::yield();
  }

 private:
  unsigned rounds_ = 0;
};

static_assert(offsetof(Counters, tail) == 0 && offsetof(Counters, head) == 128);
static_assert(sizeof(Counters) == 256 && alignof(Counters) == 128);

TEST(Ring, RoomForSeveralEntries) {
  Ring ring(8);
  for (std::uint64_t number = 0; number < 5; ++number)
    ASSERT_TRUE(ring.producer.stage(entry_of(number)));
  ring.producer.publish();
  EXPECT_TRUE(ring.producer.has_room(3));
  EXPECT_FALSE(ring.producer.has_room(4));
  Entry entry;
  ASSERT_TRUE(ring.consumer.pop(entry));
  EXPECT_FALSE(ring.producer.has_room(4)) << "not released";
  ring.consumer.release();
  EXPECT_TRUE(ring.producer.has_room(4));
  EXPECT_FALSE(ring.producer.has_room(5));
  EXPECT_FALSE(ring.producer.full());
}

TEST(Ring, AnEntryThatIsPutBackComesAgain) {
  Ring ring(4);
  for (std::uint64_t number = 0; number < 2; ++number)
    ASSERT_TRUE(ring.producer.stage(entry_of(number)));
  ring.producer.publish();
  Entry entry;
  ASSERT_TRUE(ring.consumer.pop(entry));
  ring.consumer.release();
  ASSERT_TRUE(ring.consumer.pop(entry));
  ring.consumer.unpop();
  ring.consumer.release();
  EXPECT_TRUE(ring.consumer.has_entry());
  ASSERT_TRUE(ring.consumer.pop(entry));
  EXPECT_EQ(entry, entry_of(1));
  EXPECT_FALSE(ring.consumer.pop(entry));
}

TEST(Ring, StagedIsInvisibleUntilPublished) {
  Ring ring(4);
  Entry entry;
  EXPECT_FALSE(ring.consumer.has_entry());
  ASSERT_TRUE(ring.producer.stage(entry_of(1)));
  ASSERT_TRUE(ring.producer.stage(entry_of(2)));
  EXPECT_FALSE(ring.consumer.has_entry());
  EXPECT_FALSE(ring.consumer.pop(entry));
  ring.producer.publish();
  EXPECT_TRUE(ring.consumer.has_entry());
  ASSERT_TRUE(ring.consumer.pop(entry));
  EXPECT_EQ(entry, entry_of(1));
  EXPECT_EQ(ring.consumer.backlog(), 1u);
  ASSERT_TRUE(ring.consumer.pop(entry));
  EXPECT_EQ(entry, entry_of(2));
  EXPECT_FALSE(ring.consumer.pop(entry));
}

TEST(Ring, UnstagedIsNeverSeen) {
  Ring ring(2);
  ASSERT_TRUE(ring.producer.stage(entry_of(1)));
  ring.producer.unstage();
  ring.producer.publish();
  EXPECT_FALSE(ring.consumer.has_entry());
  ASSERT_TRUE(ring.producer.stage(entry_of(2)));
  ring.producer.publish();
  Entry entry;
  ASSERT_TRUE(ring.consumer.pop(entry));
  EXPECT_EQ(entry, entry_of(2));
}

TEST(Ring, PlacesComeBackOnlyWithRelease) {
  for (const std::size_t capacity : {1u, 2u, 8u}) {
    Ring ring(capacity);
    std::uint64_t next = 0, expected = 0;
    for (int round = 0; round < 5; ++round) {
      while (ring.producer.stage(entry_of(next))) ++next;
      EXPECT_TRUE(ring.producer.full());
      ring.producer.publish();
      EXPECT_EQ(next - expected, capacity);
      Entry entry;
      while (ring.consumer.pop(entry)) EXPECT_EQ(entry, entry_of(expected++));
      EXPECT_FALSE(ring.producer.stage(entry_of(next))) << "popped is not released";
      EXPECT_EQ(ring.producer.consumed(), expected - capacity);
      EXPECT_TRUE(ring.consumer.has_entry());
      ring.consumer.release();
      EXPECT_FALSE(ring.consumer.has_entry());
      EXPECT_EQ(ring.producer.consumed(), expected);
      EXPECT_FALSE(ring.producer.full());
    }
    EXPECT_FALSE(ring.producer.corrupt());
    EXPECT_FALSE(ring.consumer.corrupt());
    EXPECT_EQ(ring.producer.tail(), ring.consumer.head());
  }
}

// Values that a hostile or broken peer writes -----------------------------------------------------

TEST(RingHostile, ConsumerRefusesEveryTailOutsideItsRange) {
  // Five entries passed through a ring of four, two of them not popped: 5..7 would be legal next.
  for (const std::uint64_t forged : {std::uint64_t{0}, std::uint64_t{4}, std::uint64_t{10},
                                     std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    Ring ring(4);
    Entry entry;
    for (std::uint64_t i = 0; i < 5; ++i) {
      ASSERT_TRUE(ring.producer.stage(entry_of(i)));
      ring.producer.publish();
      ASSERT_TRUE(ring.consumer.pop(entry));
      ring.consumer.release();
    }
    ring.counters.tail = forged;
    EXPECT_FALSE(ring.consumer.corrupt()) << "nothing was looked at yet";
    EXPECT_FALSE(ring.consumer.pop(entry)) << forged;
    EXPECT_TRUE(ring.consumer.corrupt()) << forged;
    EXPECT_EQ(entry, entry_of(4)) << "the caller's entry was touched";
    EXPECT_EQ(ring.consumer.head(), 5u);
  }
  for (std::uint64_t legal = 5; legal <= 9; ++legal) {
    Ring ring(4);
    Entry entry;
    for (std::uint64_t i = 0; i < 5; ++i) {
      ASSERT_TRUE(ring.producer.stage(entry_of(i)));
      ring.producer.publish();
      ASSERT_TRUE(ring.consumer.pop(entry));
      ring.consumer.release();
    }
    ring.counters.tail = legal;
    EXPECT_EQ(ring.consumer.pop(entry), legal != 5);
    EXPECT_FALSE(ring.consumer.corrupt()) << legal;
  }
}

TEST(RingHostile, ProducerRefusesEveryHeadOutsideItsRange) {
  // Six entries are published, two of them seen as released, and one more is staged.
  const auto prepare = [](Ring& ring) {
    Entry entry;
    for (std::uint64_t i = 0; i < 6; ++i) {
      ASSERT_TRUE(ring.producer.stage(entry_of(i)));
      ring.producer.publish();
      if (i >= 2) continue;
      ASSERT_TRUE(ring.consumer.pop(entry));
      ring.consumer.release();
    }
    ASSERT_EQ(ring.producer.consumed(), 2u);
    ASSERT_TRUE(ring.producer.stage(entry_of(6)));
  };
  for (const std::uint64_t forged :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{8}, std::uint64_t{100},
        std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    Ring ring(8);
    prepare(ring);
    ring.counters.head = forged;
    EXPECT_EQ(ring.producer.consumed(), 2u) << "a forged head was believed: " << forged;
    EXPECT_TRUE(ring.producer.corrupt()) << forged;
  }
  for (std::uint64_t legal = 2; legal <= 6; ++legal) {
    Ring ring(8);
    prepare(ring);
    ring.counters.head = legal;
    EXPECT_EQ(ring.producer.consumed(), legal);
    EXPECT_FALSE(ring.producer.corrupt()) << legal;
  }
}

TEST(RingHostile, FullRingWithAForgedHeadStaysFull) {
  Ring ring(2);
  ASSERT_TRUE(ring.producer.stage(entry_of(0)));
  ASSERT_TRUE(ring.producer.stage(entry_of(1)));
  ring.producer.publish();
  ring.counters.head = 3;
  EXPECT_FALSE(ring.producer.stage(entry_of(2)));
  EXPECT_TRUE(ring.producer.full());
  EXPECT_TRUE(ring.producer.corrupt());
  EXPECT_EQ(ring.entries[0], entry_of(0));
}

TEST(RingHostile, CorruptionIsRemembered) {
  Ring ring(2);
  Entry entry;
  ring.counters.tail = 3;
  EXPECT_FALSE(ring.consumer.pop(entry));
  ring.counters.tail = 0;
  EXPECT_FALSE(ring.consumer.pop(entry));
  EXPECT_TRUE(ring.consumer.corrupt());
}

// Both counters lie in memory the peer can write, even our own counter.
TEST(RingHostile, OurOwnSharedCounterDecidesNothing) {
  Ring ring(2);
  Entry entry;
  ring.counters.head = 77;
  EXPECT_FALSE(ring.consumer.has_entry()) << "a scribble must not keep a sleeper awake";
  ASSERT_TRUE((ring.counters.head = 0, ring.producer.stage(entry_of(1))));
  ring.producer.publish();
  ring.counters.head = 1;
  EXPECT_TRUE(ring.consumer.has_entry()) << "nor let it sleep";
  ASSERT_TRUE(ring.consumer.pop(entry));
  ring.consumer.release();
  EXPECT_EQ(ring.counters.head, 1u);
  ring.counters.tail = 55;
  ASSERT_TRUE(ring.producer.stage(entry_of(2)));
  ring.producer.publish();
  EXPECT_EQ(ring.counters.tail, 2u);
}

// No value that a peer writes makes an end touch memory outside its entries (a sanitizer watches)
// or return more entries than places.
TEST(RingHostile, RandomCountersNeverLeadOutside) {
  const auto seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    Ring ring(std::size_t{1} << random() % 5);
    Entry entry;
    std::uint64_t popped = 0;
    for (int step = 0; step < 50; ++step) {
      const std::uint64_t near = ring.producer.tail() + random() % 9 - 4;
      switch (random() % 6) {
        case 0:
          ring.counters.head = random() % 2 != 0 ? near : random();
          break;
        case 1:
          ring.counters.tail = random() % 2 != 0 ? near : random();
          break;
        case 2:
          (void)ring.producer.stage(entry_of(1));
          break;
        case 3:
          ring.producer.publish();
          break;
        case 4:
          for (std::size_t run = 0; ring.consumer.pop(entry); ++run, ++popped)
            ASSERT_LE(run, 2 * ring.entries.size());
          break;
        default:
          ring.consumer.release();
          break;
      }
      ASSERT_LE(ring.consumer.backlog(), ring.entries.size());
      ASSERT_LE(ring.producer.consumed(), ring.producer.tail());
      ASSERT_EQ(ring.consumer.head(), popped);
    }
  }
}

// Two threads -------------------------------------------------------------------------------------

class RingThreads : public testing::TestWithParam<std::size_t> {};

TEST_P(RingThreads, EveryEntryOnceInOrderAndWhole) {
  const auto seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  Ring ring(GetParam());
  std::thread writer([&ring, seed] {
    std::mt19937 random(seed);
    Backoff backoff;
    const Effort effort(kMany);
    for (std::uint64_t i = 0; true; ++i) {
      const bool last = !effort.more(i);
      while (!ring.producer.stage(entry_of(last ? kLast : i))) {
        ring.producer.publish();
        backoff.pause();
      }
      if (last) break;
      if (random() % 3 == 0) ring.producer.publish();
    }
    ring.producer.publish();
  });
  std::mt19937 random(seed + 1);
  Backoff backoff;
  std::uint64_t wrong = 0;
  std::uint64_t count = 0;
  for (Entry entry;; ++count) {
    while (!ring.consumer.pop(entry)) {
      ring.consumer.release();
      backoff.pause();
    }
    if (entry == entry_of(kLast)) break;
    if (entry != entry_of(count)) ++wrong;
    if (random() % 3 == 0) ring.consumer.release();
  }
  writer.join();
  ring.consumer.release();
  EXPECT_EQ(wrong, 0u) << "of " << count << ", seed " << seed;
  EXPECT_GE(count, 100u);
  EXPECT_EQ(ring.producer.consumed(), count + 1);
  EXPECT_FALSE(ring.consumer.has_entry());
  EXPECT_FALSE(ring.producer.corrupt());
  EXPECT_FALSE(ring.consumer.corrupt());
}

INSTANTIATE_TEST_SUITE_P(Capacities, RingThreads, testing::Values(1, 2, 4, 64, 1024));

// The same through two mappings of one segment, as two processes have it. ThreadSanitizer cannot
// relate the mappings.
#if !defined(__SANITIZE_THREAD__)
TEST(RingMappings, EveryEntryThroughTwoMappings) {
  struct Block {
    Counters counters;
    std::array<Entry, 8> entries;
  };
  const auto mine = Segment::create(sizeof(Block)).value();
  const auto theirs = Segment::attach(OwnedFd(dup(mine->fd())), mine->size_bytes()).value();
  auto* here = new (mine->data()) Block;
  auto* there = reinterpret_cast<Block*>(theirs->data());
  std::thread writer([here] {
    Producer producer(here->counters, here->entries);
    Backoff backoff;
    const Effort effort(kMany);
    for (std::uint64_t i = 0; true; ++i) {
      const bool last = !effort.more(i);
      while (!producer.stage(entry_of(last ? kLast : i))) backoff.pause();
      producer.publish();
      if (last) break;
    }
  });
  Consumer consumer(there->counters, there->entries);
  Backoff backoff;
  std::uint64_t wrong = 0;
  std::uint64_t count = 0;
  for (Entry entry;; ++count) {
    while (!consumer.pop(entry)) backoff.pause();
    consumer.release();
    if (entry == entry_of(kLast)) break;
    if (entry != entry_of(count)) ++wrong;
  }
  writer.join();
  EXPECT_EQ(wrong, 0u) << "of " << count;
  EXPECT_GE(count, 100u);
}
#endif

// Each side sleeps on its own eventfd whenever it has nothing, so every round passes through both
// doorbells.
TEST(Doorbell, NobodySleepsForEver) {
  constexpr int kHangs_ms = 30'000;  // ends a test that would wait forever; no measure of speed
  struct Side {
    Ring ring{2};
    SharedMemoryPolicy::Word sleeping{0};
    OwnedFd bell{eventfd(0, EFD_CLOEXEC)};
    std::atomic<std::uint64_t> sleeps{0};
  };
  Side a, b;
  const auto push = [](Side& to, std::uint64_t number) {
    while (!to.ring.producer.stage(entry_of(number)))
      std::this_thread::yield();  // two in flight at most
    to.ring.producer.publish();
    if (SleepWord<>(to.sleeping).asleep(SleepWord<>::kForMessages)) eventfd_write(to.bell.get(), 1);
  };
  const auto pop = [](Side& from, Entry& entry) {
    SleepWord<> my_word(from.sleeping);
    for (;;) {
      if (from.ring.consumer.pop(entry)) {
        from.ring.consumer.release();
        return true;
      }
      my_word.announce(SleepWord<>::kForMessages | SleepWord<>::kForReturns);
      if (!from.ring.consumer.has_entry()) {
        pollfd wanted{from.bell.get(), POLLIN, 0};
        if (TEMP_FAILURE_RETRY(poll(&wanted, 1, kHangs_ms)) != 1) return false;
        eventfd_t count = 0;
        eventfd_read(from.bell.get(), &count);
        ++from.sleeps;
      }
      my_word.awake();
    }
  };
  std::atomic<bool> good{true};
  std::uint64_t rounds = 0;
  std::thread other([&] {
    for (std::uint64_t i = 0; good; ++i) {
      Entry entry;
      if (!pop(b, entry)) good = false;
      if (entry == entry_of(kLast)) break;
      if (entry != entry_of(i)) good = false;
      push(a, i);
    }
  });
  const Effort effort(kMany / 10);
  for (Entry entry; good && effort.more(rounds); ++rounds) {
    push(b, rounds);
    if (!pop(a, entry) || entry != entry_of(rounds)) good = false;
  }
  push(b, kLast);
  other.join();
  EXPECT_TRUE(good) << "a wake-up was lost or a message was wrong";
  EXPECT_GT(a.sleeps + b.sleeps, 0u);
  std::cout << "slept " << a.sleeps << " and " << b.sleeps << " times in " << rounds << " rounds\n";
}

// The checker replaces the barrier, so the real one is tested separately: each thread stores to its
// own word, then loads the other's. Without a barrier both loads may miss, on x86 too. That shows
// on two free cores; on a busy machine this test may pass for lack of chances.
TEST(Doorbell, BarrierKeepsALoadBehindAStore) {
  struct alignas(128) Cell {
    std::atomic<std::uint64_t> word{0};
  };
  constexpr std::size_t kBatch = 1000;
  std::array<std::vector<Cell>, 2> cells{std::vector<Cell>(kBatch), std::vector<Cell>(kBatch)};
  std::array<std::array<std::uint64_t, kBatch>, 2> seen{};
  std::atomic<std::uint64_t> started{0}, finished{0};
  std::atomic<bool> done{false};
  // Rounds count up, so that no cell must be cleared.
  const auto run = [&](std::size_t me, std::uint64_t round) {
    started.fetch_add(1);
    Backoff backoff;
    while (started.load() < 2 * round) backoff.pause();
    for (std::size_t i = 0; i < kBatch; ++i) {
      SharedMemoryPolicy::store_relaxed(cells[me][i].word, round);
      full_barrier();
      seen[me][i] = SharedMemoryPolicy::load_relaxed(cells[1 - me][i].word);
    }
    finished.fetch_add(1);
    while (finished.load() < 2 * round) backoff.pause();
  };
  const Effort effort(2'000);
  std::uint64_t both_missed = 0, rounds = 0;
  std::thread other([&] {
    Backoff backoff;
    for (std::uint64_t round = 1;; ++round) {
      while (started.load() < 2 * round - 1 && !done) backoff.pause();
      if (done) return;
      run(1, round);
    }
  });
  for (std::uint64_t round = 1; effort.more(rounds); ++round, ++rounds) {
    run(0, round);
    for (std::size_t i = 0; i < kBatch; ++i)
      if (seen[0][i] != round && seen[1][i] != round) ++both_missed;
  }
  done = true;
  other.join();
  EXPECT_EQ(both_missed, 0u) << "of " << rounds * kBatch;
}

TEST(Doorbell, RingsOnlyForWhatTheSleeperWaitsFor) {
  SharedMemoryPolicy::Word word{0};
  SleepWord<> my_word(word);
  EXPECT_FALSE(my_word.asleep(SleepWord<>::kForMessages));
  my_word.announce(SleepWord<>::kForMessages);
  EXPECT_TRUE(my_word.asleep(SleepWord<>::kForMessages));
  EXPECT_FALSE(my_word.asleep(SleepWord<>::kForReturns));
  my_word.announce(SleepWord<>::kForMessages | SleepWord<>::kForReturns);
  EXPECT_TRUE(my_word.asleep(SleepWord<>::kForReturns));
  my_word.awake();
  EXPECT_FALSE(my_word.asleep(SleepWord<>::kForMessages | SleepWord<>::kForReturns));
}

}  // namespace
}  // namespace tendon::v0::detail
