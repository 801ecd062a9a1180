// SPDX-License-Identifier: Apache-2.0
#include "memory/slot_pool.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/child.hpp"
#include "support/expect.hpp"
#include "support/locked_memory.hpp"

namespace tendon::v0::detail {
namespace {

using test::fails_with;
using test::succeeds;

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;
constexpr std::uint64_t kPage = 4096;

Slot take(SlotPool& pool, std::uint64_t size_bytes) {
  auto slot = pool.acquire(size_bytes);
  if (!slot) ADD_FAILURE() << slot.error().message();
  return slot ? *slot : Slot{};
}

std::size_t resident_pages(MutableBytes memory) {
  std::vector<unsigned char> pages(memory.size() / kPage);
  EXPECT_EQ(mincore(memory.data(), memory.size(), pages.data()), 0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](auto p) { return p & 1; }));
}

/// Slots that are loaned, sent or quarantined; the rest is free.
struct Counts {
  std::uint64_t loaned = 0, sent = 0, quarantined = 0;
  bool operator==(const Counts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Counts& c) {
  return out << "loaned " << c.loaned << " sent " << c.sent << " quarantined " << c.quarantined;
}
Counts counts(const SlotPool& pool) {
  const SlotPoolStats stats = pool.stats();
  return {stats.loaned_count, stats.sent_count, stats.quarantined_count};
}

// States and transitions --------------------------------------------------------------------------

enum class State { free, loaned, sent, quarantined };

/// A pool whose tested slot is in `state`.
struct Prepared {
  explicit Prepared(State state) : id(take(pool, 1).id) {
    const bool sends = state == State::sent || state == State::quarantined;
    EXPECT_EQ(sends && pool.ledger().mark_sent(id), sends);
    if (state == State::quarantined) pool.ledger().quarantine_sent();
    if (state == State::free) pool.release(id);
  }
  State state() const {
    const Counts now = counts(pool);
    return now.loaned        ? State::loaned
           : now.sent        ? State::sent
           : now.quarantined ? State::quarantined
                             : State::free;
  }
  SlotPool pool{"test", kMiB};
  SlotId id;
};

TEST(SlotPoolLedger, EveryTransitionLegalOrNot) {
  using S = State;
  const S from[] = {S::free, S::loaned, S::sent, S::quarantined};
  const S release[] = {S::free, S::free, S::sent, S::quarantined};
  const S mark_sent[] = {S::free, S::sent, S::sent, S::quarantined};
  const S unmark_sent[] = {S::free, S::loaned, S::loaned, S::quarantined};
  const S take_return[] = {S::free, S::loaned, S::free, S::free};
  const S quarantine[] = {S::free, S::loaned, S::quarantined, S::quarantined};
  const S free_sent[] = {S::free, S::loaned, S::free, S::free};
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    const bool with_peer = from[i] == S::sent || from[i] == S::quarantined;
    {
      Prepared p(from[i]);
      p.pool.release(p.id);
      EXPECT_EQ(p.state(), release[i]);
    }
    {
      Prepared p(from[i]);
      EXPECT_EQ(p.pool.ledger().mark_sent(p.id), from[i] == S::loaned);
      EXPECT_EQ(p.state(), mark_sent[i]);
    }
    {
      Prepared p(from[i]);
      EXPECT_EQ(p.pool.ledger().unmark_sent(p.id), from[i] == S::sent);
      EXPECT_EQ(p.state(), unmark_sent[i]);
    }
    {
      Prepared p(from[i]);
      EXPECT_EQ(p.pool.ledger().take_return(p.id), with_peer);
      EXPECT_EQ(p.pool.stats().ignored_returns, with_peer ? 0u : 1u);
      EXPECT_EQ(p.state(), take_return[i]);
    }
    {
      Prepared p(from[i]);
      p.pool.ledger().quarantine_sent();
      EXPECT_EQ(p.state(), quarantine[i]);
      EXPECT_EQ(p.pool.stats().sent_count + p.pool.stats().quarantined_count != 0, with_peer);
    }
    {
      Prepared p(from[i]);
      p.pool.ledger().free_sent();
      EXPECT_EQ(p.state(), free_sent[i]);
      EXPECT_EQ(p.pool.stats().sent_count + p.pool.stats().quarantined_count, 0u);
    }
  }
}

TEST(SlotPoolLedger, OneSlotOneHolder) {
  SlotPool pool("test", 4 * kPage);  // exactly four slots of the smallest size
  std::set<std::byte*> places;
  std::vector<SlotId> ids;
  for (int i = 0; i < 4; ++i) {
    const Slot slot = take(pool, 1);
    EXPECT_EQ(slot.memory.size(), kPage);
    EXPECT_EQ(slot.id.generation, 1u);
    EXPECT_TRUE(places.insert(slot.memory.data()).second);
    ids.push_back(slot.id);
  }
  EXPECT_FALSE(pool.acquire(1).has_value());
  ASSERT_TRUE(pool.ledger().mark_sent(ids[2]));
  EXPECT_FALSE(pool.acquire(1).has_value()) << "a slot with the peer went out again";
  pool.ledger().quarantine_sent();
  EXPECT_FALSE(pool.acquire(1).has_value()) << "a slot in quarantine went out again";
  ASSERT_TRUE(pool.ledger().take_return(ids[2]));
  const Slot again = take(pool, 1);
  EXPECT_EQ(again.id.slot, ids[2].slot);
  EXPECT_EQ(again.id.generation, 2u);
}

TEST(SlotPoolLedger, ReturnsThatAreNotInItAreCountedAndIgnored) {
  SlotPool pool("test", kMiB);
  const SlotId old = take(pool, 1).id;
  ASSERT_TRUE(pool.ledger().mark_sent(old));
  ASSERT_TRUE(pool.ledger().take_return(old));
  const SlotId id = take(pool, 1).id;  // the same slot, one generation later
  ASSERT_EQ(id.slot, old.slot);
  ASSERT_TRUE(pool.ledger().mark_sent(id));
  const Counts before = counts(pool);

  constexpr auto kMax32 = ~std::uint32_t{0};
  constexpr auto kMax64 = ~std::uint64_t{0};
  const std::vector<SlotId> forged = {
      old,
      {id.segment, id.slot, 0},
      {id.segment, id.slot, id.generation + 1},
      {id.segment, id.slot, kMax64},
      {id.segment, id.slot + 1, id.generation},
      {id.segment, id.slot + 1, 0},  // a slot never used has generation 0, and is free
      {id.segment, 63, 0},
      {id.segment, 64, 0},
      {id.segment, kMax32, id.generation},
      {id.segment + 1, id.slot, id.generation},
      {kMax32, id.slot, id.generation},
      {kMax32, kMax32, kMax64},
  };
  for (const SlotId wrong : forged) EXPECT_FALSE(pool.ledger().take_return(wrong));
  EXPECT_EQ(pool.stats().ignored_returns, forged.size());
  EXPECT_EQ(counts(pool), before);
  for (const SlotId wrong : forged) {
    pool.release(wrong);
    EXPECT_FALSE(pool.ledger().mark_sent(wrong));
    EXPECT_FALSE(pool.ledger().unmark_sent(wrong));
  }
  EXPECT_EQ(counts(pool), before);

  EXPECT_TRUE(pool.ledger().take_return(id));
  EXPECT_FALSE(pool.ledger().take_return(id)) << "twice";
  EXPECT_EQ(pool.stats().ignored_returns, forged.size() + 1);
}

TEST(SlotPoolLedger, DeathFreesWhatThePeerHadAndNothingElse) {
  SlotPool pool("test", kMiB);
  const SlotId quarantined = take(pool, 1).id;
  ASSERT_TRUE(pool.ledger().mark_sent(quarantined));
  pool.ledger().quarantine_sent();
  const Slot loaned = take(pool, 1);
  const SlotId sent = take(pool, 8 * kKiB).id;
  ASSERT_TRUE(pool.ledger().mark_sent(sent));
  EXPECT_EQ(counts(pool), (Counts{1, 1, 1}));
  EXPECT_EQ(pool.stats().sent_bytes, 8 * kKiB);
  EXPECT_EQ(pool.stats().quarantined_bytes, 4 * kKiB);
  pool.ledger().free_sent();
  EXPECT_EQ(counts(pool), (Counts{1, 0, 0}));
  EXPECT_EQ(pool.stats().sent_bytes, 0u);
  EXPECT_EQ(pool.stats().quarantined_bytes, 0u);
  EXPECT_FALSE(pool.ledger().take_return(sent))
      << "what the dead wrote last changes nothing any more";
  EXPECT_FALSE(pool.ledger().take_return(quarantined));
  EXPECT_TRUE(pool.ledger().mark_sent(loaned.id));
}

TEST(SlotPoolLedger, LastUsedGoesOutFirst) {
  SlotPool pool("test", kMiB);
  const SlotId first = take(pool, 1).id;
  const SlotId second = take(pool, 1).id;
  pool.release(first);
  pool.release(second);
  EXPECT_EQ(take(pool, 1).id.slot, second.slot);
  EXPECT_EQ(take(pool, 1).id.slot, first.slot);
}

// Sizes and limits --------------------------------------------------------------------------------

TEST(SlotPoolSizes, ClassesArePowersOfTwo) {
  EXPECT_EQ(SlotPool::slot_bytes_for(0), kPage);
  EXPECT_EQ(SlotPool::slot_bytes_for(1), kPage);
  EXPECT_EQ(SlotPool::slot_bytes_for(kPage), kPage);
  EXPECT_EQ(SlotPool::slot_bytes_for(kPage + 1), 2 * kPage);
  EXPECT_EQ(SlotPool::slot_bytes_for(100 * kMiB), 128 * kMiB);
  EXPECT_EQ(SlotPool::slot_bytes_for(std::uint64_t{1} << 63), std::uint64_t{1} << 63);
  EXPECT_EQ(SlotPool::slot_bytes_for(~std::uint64_t{0}), std::uint64_t{1} << 63);
}

TEST(SlotPoolSizes, GuaranteeIsKnownToBothEnds) {
  constexpr std::uint64_t kGiB = 1024 * kMiB;
  struct Row {
    std::uint64_t slot_bytes, cap_bytes;
    std::uint32_t count;
  };
  for (const Row& row : {Row{kPage, kGiB, 64}, Row{4 * kMiB, kGiB, 64}, Row{8 * kMiB, kGiB, 32},
                         Row{32 * kMiB, kGiB, 8}, Row{128 * kMiB, kGiB, 8},
                         Row{128 * kMiB, kGiB - 1, 7}, Row{256 * kMiB, kGiB, 4}, Row{kGiB, kGiB, 1},
                         Row{2 * kGiB, kGiB, 1}, Row{kPage, kPage, 1}, Row{kPage, 3 * kPage, 3},
                         Row{kPage, 0, 1}, Row{0, kGiB, 64}, Row{~std::uint64_t{0}, kGiB, 1},
                         Row{0, 0, 1}, Row{~std::uint64_t{0}, ~std::uint64_t{0}, 1}}) {
    EXPECT_EQ(SlotPool::guaranteed_count(row.slot_bytes, row.cap_bytes), row.count)
        << row.slot_bytes << " of " << row.cap_bytes;
  }
}

TEST(SlotPoolSizes, GuaranteedSlotsCanAllBeHad) {
  for (const std::uint64_t cap : {kPage, 3 * kPage, 5 * kPage + 17, kMiB, 3 * kMiB}) {
    for (std::uint64_t size = 1; size <= cap; size *= 3) {
      SlotPool pool("test", cap);
      const std::uint64_t slot_bytes = SlotPool::slot_bytes_for(size);
      const std::uint32_t count = SlotPool::guaranteed_count(slot_bytes, cap);
      for (std::uint32_t i = 0; i < count; ++i)
        ASSERT_TRUE(pool.acquire(size).has_value())
            << i << " of " << count << ", " << size << "/" << cap;
    }
  }
}

TEST(SlotPoolSizes, CapIsTheLargestMessage) {
  for (const std::uint64_t cap : {kPage, kPage + 1, kMiB, kMiB + 1}) {
    SlotPool pool("link to vision", cap);
    const Slot slot = take(pool, cap);
    EXPECT_GE(slot.memory.size(), cap);
    slot.memory[cap - 1] = std::byte{1};
    const auto above = pool.acquire(cap + 1);
    ASSERT_FALSE(above.has_value());
    EXPECT_EQ(above.error().code, ErrorCode::message_too_large);
    for (const std::string& word :
         {std::string("link to vision"), std::to_string(cap + 1), std::to_string(cap)})
      EXPECT_NE(above.error().detail.find(word), std::string::npos) << above.error().detail;
  }
}

TEST(SlotPoolSizes, NearTheEndOfTheNumbers) {
  SlotPool pool("test", kMiB);
  for (const std::uint64_t size :
       {std::uint64_t{1} << 62, std::uint64_t{1} << 63, (std::uint64_t{1} << 63) + 1,
        ~std::uint64_t{0} - 4095, ~std::uint64_t{0}}) {
    const auto slot = pool.acquire(size);
    ASSERT_FALSE(slot.has_value());
    EXPECT_EQ(slot.error().code, ErrorCode::message_too_large) << slot.error().message();
    EXPECT_TRUE(pool.prefault(size, 1, [] { return true; }).has_value())
        << "there is nothing to touch";
  }
  EXPECT_EQ(pool.stats().segment_count, 0u);

  SlotPool vast("test", ~std::uint64_t{0});
  EXPECT_EQ(vast.cap_bytes(), SlotPool::kLargestCapBytes);
  EXPECT_EQ(take(vast, 1).memory.size(), kPage);
  EXPECT_FALSE(vast.acquire(~std::uint64_t{0}).has_value());
  EXPECT_FALSE(vast.acquire(SlotPool::kLargestCapBytes).has_value())
      << "no process has these addresses";

  SlotPool tiny("test", 0);
  EXPECT_EQ(take(tiny, 0).memory.size(), kPage);
}

TEST(SlotPoolSizes, ExhaustionSaysWhoHasWhat) {
  SlotPool pool("link to vision (host a, pid 12)", 3 * kPage);
  const SlotId quarantined = take(pool, 1).id;
  ASSERT_TRUE(pool.ledger().mark_sent(quarantined));
  pool.ledger().quarantine_sent();
  const SlotId sent = take(pool, 1).id;
  ASSERT_TRUE(pool.ledger().mark_sent(sent));
  take(pool, 1);
  const auto slot = pool.acquire(1);
  ASSERT_FALSE(slot.has_value());
  EXPECT_EQ(slot.error().code, ErrorCode::resource_exhausted);
  for (const char* words : {"link to vision (host a, pid 12)", "holds 1 slots (4096 bytes)",
                            "quarantined 1 (4096 bytes)", "loaned here 1", "cap is 12288"})
    EXPECT_NE(slot.error().detail.find(words), std::string::npos) << slot.error().detail;
}

TEST(SlotPoolGrowth, NewSegmentsLeaveOldOnesWhereTheyAre) {
  SlotPool pool("test", 64 * kMiB);
  std::vector<Slot> slots;
  for (int i = 0; i < 300; ++i) {
    slots.push_back(take(pool, 1));
    std::memcpy(slots.back().memory.data(), &i, sizeof i);
  }
  EXPECT_EQ(pool.segment_count(), 5u);  // of 64 slots each
  for (int i = 0; i < 300; ++i)
    EXPECT_EQ(std::memcmp(slots[static_cast<std::size_t>(i)].memory.data(), &i, sizeof i), 0);

  const auto infos = pool.ledger().segments_from(3);
  ASSERT_EQ(infos.size(), 2u);
  EXPECT_EQ(infos[0].id, 3u);
  EXPECT_EQ(infos[1].id, 4u);
  EXPECT_EQ(infos[1].slot_bytes, kPage);
  EXPECT_EQ(infos[1].slot_count, 64u);
  const Slot& last = slots.back();
  EXPECT_EQ(infos[1].segment->data() + last.id.slot * kPage, last.memory.data());
  EXPECT_TRUE(pool.ledger().segments_from(5).empty());
  EXPECT_TRUE(pool.ledger().segments_from(~std::uint32_t{0}).empty());
}

// The return ring of the peer has this many places, so the number of slots is the limit that keeps
// it from filling up.
TEST(SlotPoolGrowth, SlotCountIsBounded) {
  SlotPool pool("test", std::uint64_t{1} << 40);
  std::uint32_t count = 0;
  // One class alone, then every other: none may take the guaranteed slots of another.
  for (std::uint64_t size = SlotPool::kSmallestSlotBytes; size <= pool.cap_bytes(); size *= 2) {
    std::uint32_t of_class = 0;
    while (pool.acquire(size)) ASSERT_LE(++of_class, SlotPool::kMaxSlots);
    EXPECT_GE(of_class, SlotPool::guaranteed_count(size, pool.cap_bytes())) << size;
    count += of_class;
    if (pool.stats().resident_bytes > pool.cap_bytes() / 2) break;
  }
  EXPECT_LE(count, SlotPool::kMaxSlots);
  EXPECT_GT(count, SlotPool::kMaxSlots / 2);
  const auto more = pool.acquire(1);
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code, ErrorCode::resource_exhausted);
  EXPECT_NE(more.error().detail.find("8192 slots"), std::string::npos) << more.error().detail;
}

// Slots and reserved places together never exceed the places of a return ring, and no size loses
// its guaranteed slots.
TEST(SlotPoolGrowth, ReservedPlacesAreTakenFromTheSlots) {
  SlotPool pool("test", std::uint64_t{1} << 40);
  std::uint32_t reserved = pool.ledger().reserve_places(2048);
  EXPECT_EQ(reserved, 2048u);
  std::uint32_t count = 0;
  for (std::uint64_t size = SlotPool::kSmallestSlotBytes; size <= pool.cap_bytes(); size *= 2) {
    std::uint32_t of_class = 0;
    while (pool.acquire(size)) ASSERT_LE(++of_class, SlotPool::kMaxSlots);
    EXPECT_GE(of_class, SlotPool::guaranteed_count(size, pool.cap_bytes())) << size;
    count += of_class;
    if (pool.stats().resident_bytes > pool.cap_bytes() / 2) break;
    // Reserved places take nothing from sizes that have no slots yet.
    reserved += pool.ledger().reserve_places(SlotPool::kMaxSlots);
  }
  EXPECT_LE(count + reserved, SlotPool::kMaxSlots);
  EXPECT_EQ(pool.ledger().reserve_places(1), 0u);
}

TEST(SlotPoolGrowth, SegmentCountIsBounded) {
  SlotPool pool(
      "test", std::uint64_t{1} << 40);  // loans are not touched here, so this costs addresses only
  std::uint32_t count = 0;
  while (pool.acquire(32 * kMiB)) ASSERT_LE(++count, SlotPool::kMaxSlots);
  EXPECT_GT(pool.segment_count(), SlotPool::kMaxSegments / 2);
  EXPECT_LT(pool.segment_count(), SlotPool::kMaxSegments);
  EXPECT_TRUE(fails_with(pool.acquire(32 * kMiB), ErrorCode::resource_exhausted));
  EXPECT_TRUE(succeeds(pool.acquire(1))) << "the last segments are for other sizes";
}

// Pages -------------------------------------------------------------------------------------------

TEST(SlotPoolPages, FreePagesGoBackUnderPressure) {
  SlotPool pool("test", 8 * kMiB);
  std::vector<Slot> small;
  for (int i = 0; i < 8; ++i) {
    small.push_back(take(pool, 512 * kKiB));
    std::memset(small.back().memory.data(), i + 1, small.back().memory.size());
  }
  for (int i = 2; i < 8; ++i) pool.release(small[static_cast<std::size_t>(i)].id);
  EXPECT_EQ(pool.stats().resident_bytes, 4 * kMiB);
  const Slot large = take(pool, 4 * kMiB);
  EXPECT_EQ(pool.stats().resident_bytes, 8 * kMiB) << "room enough: nothing may be discarded";
  EXPECT_EQ(resident_pages(small[7].memory), 128u);
  const Slot larger = take(pool, 2 * kMiB);
  EXPECT_LE(pool.stats().resident_bytes, 8 * kMiB);
  std::memset(large.memory.data(), 100, large.memory.size());
  std::memset(larger.memory.data(), 101, larger.memory.size());
  // Loaned slots keep their bytes; among the free slots the warmest lose their pages last.
  for (std::size_t i : {0u, 1u}) {
    EXPECT_EQ(small[i].memory.front(), static_cast<std::byte>(i + 1));
    EXPECT_EQ(small[i].memory.back(), static_cast<std::byte>(i + 1));
  }
  EXPECT_EQ(resident_pages(small[2].memory), 0u);
  EXPECT_EQ(resident_pages(small[7].memory), 128u);
}

/// The bytes of the pages of a pool's files, mapped by any process.
std::uint64_t file_bytes(SlotPool& pool) {
  std::uint64_t bytes = 0;
  std::set<ino_t> files;
  for (const SegmentInfo& info : pool.ledger().segments_from(0)) {
    struct stat status = {};
    EXPECT_EQ(fstat(info.segment->fd(), &status), 0);
    if (files.insert(status.st_ino).second)
      bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  return bytes;
}

Slot filled(SlotPool& pool, std::uint64_t size_bytes) {
  const Slot slot = take(pool, size_bytes);
  std::memset(slot.memory.data(), 1, slot.memory.size());
  return slot;
}

// Memory that the system does not free counts.
TEST(SlotPoolPages, OfWhatItsMakerAloneMayWriteNoMoreThanTheCapIsEverTaken) {
  constexpr std::uint64_t kCap = 8 * kMiB;
  SlotPool pool("test", kCap, Writers::maker_only);
  for (const std::uint64_t size : {64 * kKiB, 1 * kMiB, 128 * kKiB, 4 * kMiB, 1 * kMiB, 256 * kKiB,
                                   2 * kMiB, 64 * kKiB, 4 * kMiB}) {
    std::vector<SlotId> slots;
    for (;;) {
      auto slot = pool.acquire(size);
      if (!slot) break;
      std::memset(slot->memory.data(), 1, slot->memory.size());
      slots.push_back(slot->id);
      ASSERT_LE(slots.size(), kCap / size);
    }
    EXPECT_GE(slots.size(), 1u) << "of " << size;
    EXPECT_LE(file_bytes(pool), kCap) << "of " << size;
    EXPECT_LE(file_bytes(pool), pool.stats().resident_bytes) << "of " << size;
    for (const SlotId id : slots) pool.release(id);
  }
}

TEST(SlotPoolPages, MemoryThatIsNotGivenBackIsCutIntoOtherSlots) {
  SlotPool pool("test", 8 * kMiB, Writers::maker_only);
  std::vector<Slot> small;
  for (int i = 0; i < 8; ++i) small.push_back(filled(pool, 1 * kMiB));
  EXPECT_FALSE(pool.acquire(2 * kMiB).has_value());
  for (const Slot& slot : small) pool.release(slot.id);
  const Slot large = filled(pool, 4 * kMiB);
  EXPECT_NE(large.id.segment, small[0].id.segment) << "what was said of that number stays so";
  EXPECT_EQ(pool.stats().resident_bytes, 8 * kMiB);
  EXPECT_EQ(file_bytes(pool), 8 * kMiB);
  pool.release(small[0].id);
  EXPECT_FALSE(pool.ledger().take_return(small[0].id));
  const Slot other = filled(pool, 4 * kMiB);
  EXPECT_NE(other.memory.data(), large.memory.data());
  EXPECT_FALSE(pool.acquire(1).has_value());
  pool.release(other.id);
  const Slot larger = take(pool, 1);
  EXPECT_EQ(larger.memory.size(), 4 * kMiB) << "a slot that is larger than needed is there";
  pool.release(larger.id);
  pool.release(large.id);
  const Slot again = filled(pool, 1 * kMiB);
  EXPECT_EQ(again.id.segment, small[0].id.segment) << "the same cut has the same number";
  EXPECT_GT(again.id.generation, small[0].id.generation);
  EXPECT_EQ(file_bytes(pool), 8 * kMiB);
}

// A slot may exceed the cap by its rounding. The pages beyond are never touched.
TEST(SlotPoolPages, NoSlotCountsForMoreThanTheCap) {
  constexpr std::uint64_t kCap = 5 * kMiB;
  for (const Writers writers : {Writers::maker_and_peer, Writers::maker_only}) {
    SCOPED_TRACE(writers == Writers::maker_only ? "maker only" : "maker and peer");
    SlotPool pool("test", kCap, writers);
    for (int round = 0; round < 3; ++round) {
      const Slot largest = take(pool, kCap);
      std::memset(largest.memory.data(), 1, kCap);
      EXPECT_EQ(pool.stats().resident_bytes, kCap);
      EXPECT_EQ(file_bytes(pool), kCap);
      pool.release(largest.id);
      std::vector<SlotId> small;
      while (small.size() <= kCap / kMiB) {
        const auto slot = pool.acquire(kMiB);
        if (!slot) break;
        std::memset(slot->memory.data(), 1, slot->memory.size());
        small.push_back(slot->id);
      }
      EXPECT_EQ(small.size(), kCap / kMiB);
      EXPECT_EQ(pool.stats().resident_bytes, kCap);
      EXPECT_EQ(file_bytes(pool), kCap);
      for (const SlotId id : small) pool.release(id);
    }
  }
}

// The pool could not tell a peer about new slots: the link has passed the descriptor on, and closed
// it.
TEST(SlotPoolPages, ASegmentOfALinkIsNotCutAnew) {
  constexpr int kMayNotLock = 77;
  const int status = test::run_in_child([] {
    SlotPool pool("test", 4 * kPage);
    std::vector<Slot> small;
    for (int i = 0; i < 4; ++i) small.push_back(filled(pool, kPage));
    for (const Slot& slot : small)
      if (!test::lock_memory(slot.memory.data(), kPage)) return kMayNotLock;
    for (const Slot& slot : small) pool.release(slot.id);
    // The process may lock nothing more, so the pool does not unlock its locked memory either.
    const rlimit none = {};
    if (setrlimit(RLIMIT_MEMLOCK, &none) != 0) return 1;
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) return kMayNotLock;
    if (!fails_with(pool.acquire(4 * kPage), ErrorCode::resource_exhausted)) return 2;
    if (file_bytes(pool) != 4 * kPage || pool.stats().resident_bytes != 4 * kPage) return 3;
    return pool.acquire(kPage) && pool.segment_count() <= 2 ? 0 : 4;
  });
  if (test::exited_with(status, kMayNotLock)) GTEST_SKIP() << "no memory can be locked";
  EXPECT_TRUE(test::exited_with(status, 0)) << status;
}

TEST(SlotPoolPages, FreePagesThatTheProgramHasLockedGoBackUnderPressure) {
  SlotPool pool("test", 4 * kPage);
  std::vector<Slot> small;
  for (int i = 0; i < 4; ++i) small.push_back(filled(pool, kPage));
  for (const Slot& slot : small)
    if (!test::lock_memory(slot.memory.data(), kPage)) GTEST_SKIP() << "no memory can be locked";
  // A link that has passed the descriptor on closes it.
  const SegmentInfo passed = pool.ledger().segments_from(0).front();
  const OwnedFd peers(dup(passed.segment->fd()));
  passed.segment->release_fd();
  for (const Slot& slot : small) pool.release(slot.id);
  const Slot large = filled(pool, 4 * kPage);
  EXPECT_EQ(pool.stats().resident_bytes, 4 * kPage);
  struct stat status = {};
  EXPECT_EQ(fstat(peers.get(), &status), 0);
  EXPECT_EQ(status.st_blocks, 0);
  const SegmentInfo fresh = pool.ledger().segments_from(large.id.segment).front();
  EXPECT_GE(fresh.segment->fd(), 0) << "the peer can be told of it";
}

#ifdef TENDON_FAILPOINTS
// With strict overcommit the system may refuse a slot after it has provided part of its pages.
TEST(SlotPoolPages, WhatARefusedClaimLeavesBehindCounts) {
  constexpr int kNotArmed = 77;
  for (const Writers writers : {Writers::maker_and_peer, Writers::maker_only}) {
    const int status = test::run_in_child([&] {
      setenv("TENDON_FAILPOINTS", "segment.claim=error@2", 1);
      SlotPool pool("test", 4 * kMiB, writers);
      const Slot first = *pool.acquire(kMiB);
      std::memset(first.memory.data(), 1, kMiB);
      std::memset(first.memory.data() + kMiB, 1, kMiB / 4);  // the second slot's
      if (pool.acquire(kMiB)) return kNotArmed;
      if (file_bytes(pool) != pool.stats().resident_bytes) return 1;
      const std::uint64_t left = writers == Writers::maker_only ? kMiB / 4 : 0;
      if (pool.stats().resident_bytes != kMiB + left) return 2;
      const auto second = pool.acquire(kMiB);
      if (!second) return 3;
      std::memset(second->memory.data(), 1, kMiB);
      if (file_bytes(pool) != pool.stats().resident_bytes) return 4;
      return pool.stats().resident_bytes == 2 * kMiB ? 0 : 5;
    });
    if (test::exited_with(status, kNotArmed))
      GTEST_SKIP() << "another test of this process has passed the failpoint";
    EXPECT_TRUE(test::exited_with(status, 0)) << status;
  }
}
#endif

TEST(SlotPoolPages, NothingHeldIsEverDiscarded) {
  SlotPool pool("test", 4 * kPage);
  const Slot loaned = take(pool, 1);
  const Slot sent = take(pool, 1);
  const Slot quarantined = take(pool, 1);
  for (const Slot& slot : {loaned, sent, quarantined}) std::memset(slot.memory.data(), 7, kPage);
  ASSERT_TRUE(pool.ledger().mark_sent(quarantined.id));
  pool.ledger().quarantine_sent();
  ASSERT_TRUE(pool.ledger().mark_sent(sent.id));
  EXPECT_FALSE(pool.acquire(2 * kPage).has_value());
  for (const Slot& slot : {loaned, sent, quarantined}) EXPECT_EQ(slot.memory.back(), std::byte{7});
}

TEST(SlotPoolPages, RequestThatCannotBeMetCostsNobodyWarmPages) {
  SlotPool pool("test", 8 * kPage);
  std::vector<Slot> slots;
  for (int i = 0; i < 6; ++i) {
    slots.push_back(take(pool, 1));
    slots.back().memory[0] = std::byte{1};
  }
  for (std::size_t i = 3; i < 6; ++i) pool.release(slots[i].id);  // three held, three warm
  EXPECT_FALSE(pool.acquire(8 * kPage).has_value());
  for (std::size_t i = 3; i < 6; ++i) EXPECT_EQ(resident_pages(slots[i].memory), 1u) << i;
}

TEST(SlotPoolPages, PrefaultTouchesWhatWillGoOutNext) {
  SlotPool pool("test", 64 * kMiB);
  int asked = 0;
  ASSERT_TRUE(pool.prefault(3 * kMiB + 1, 2, [&] { return ++asked > 0; }).has_value());
  constexpr int kPieces = 3 * kMiB / SlotPool::kPrefaultBytes + 1;
  EXPECT_EQ(asked, 2 * kPieces) << "for each of two slots";
  EXPECT_EQ(pool.stats().resident_bytes, 8 * kMiB);
  const Slot first = take(pool, 3 * kMiB + 1);
  const Slot second = take(pool, 3 * kMiB + 1);
  const Slot third = take(pool, 3 * kMiB + 1);
  EXPECT_EQ(resident_pages(first.memory), 3 * 256u + 1) << "what the message covers and no more";
  EXPECT_EQ(resident_pages(second.memory), 3 * 256u + 1);
  EXPECT_EQ(resident_pages(third.memory), 0u);
}

TEST(SlotPoolPages, PrefaultStopsWhenToldAndAtTheCap) {
  SlotPool pool("test", 4 * kMiB);
  ASSERT_TRUE(pool.prefault(2 * kMiB, 2, [] { return false; }).has_value());
  EXPECT_EQ(pool.stats().resident_bytes, 0u);
  int pieces = 0;
  ASSERT_TRUE(pool.prefault(2 * kMiB, 2, [&] { return ++pieces == 1; }).has_value());
  EXPECT_EQ(resident_pages(take(pool, 2 * kMiB).memory), SlotPool::kPrefaultBytes / kPage);
  ASSERT_TRUE(pool.prefault(kMiB, 100, [] { return true; }).has_value());
  EXPECT_LE(pool.stats().resident_bytes, 4 * kMiB);
}

TEST(SlotPoolPages, PrefaultTouchesAsManyAsItIsAskedFor) {
  SlotPool pool("test", 64 * kMiB);
  ASSERT_TRUE(pool.prefault(kMiB, 5, [] { return true; }).has_value());
  EXPECT_EQ(pool.stats().resident_bytes, 5 * kMiB);
  for (int n = 0; n < 5; ++n) EXPECT_EQ(resident_pages(take(pool, kMiB).memory), kMiB / kPage) << n;
  EXPECT_EQ(resident_pages(take(pool, kMiB).memory), 0u);
}

TEST(SlotPoolPages, PrefaultTouchesNoMoreThanStayWarm) {
  SlotPool pool("test", 64 * kMiB);
  const Slot sent = take(pool, kMiB);
  ASSERT_TRUE(pool.ledger().mark_sent(sent.id));
  ASSERT_TRUE(pool.prefault(kMiB, 2, [] { return true; }).has_value());
  EXPECT_EQ(pool.stats().resident_bytes, 2 * kMiB) << "one that is out counts";
}

TEST(SlotPoolPages, SmallSlotsStayWarmInNumbers) {
  EXPECT_EQ(SlotPool::warm_slots(kPage), 16u);
  EXPECT_EQ(SlotPool::warm_slots(32 * kKiB), 2u);
  EXPECT_EQ(SlotPool::warm_slots(kMiB), SlotPool::kLeastWarmSlots);

  SlotPool pool("test", 64 * kMiB);
  (void)take(pool, 1);
  auto ledger = pool.ledger();
  std::vector<SlotId> taken;
  while (ledger.has_warm(1)) {
    const auto slot = ledger.acquire_warm(1);
    ASSERT_TRUE(slot.has_value()) << taken.size();
    taken.push_back(slot->id);
  }
  EXPECT_EQ(taken.size(), SlotPool::warm_slots(kPage) - 1);
  EXPECT_FALSE(ledger.acquire_warm(1).has_value());
  ASSERT_TRUE(ledger.mark_sent(taken.back()));
  ASSERT_TRUE(ledger.take_return(taken.back()));
  EXPECT_TRUE(ledger.has_warm(1)) << "one came back";
}

TEST(SlotPoolPages, AColdSlotIsFilledThroughItsFile) {
  SlotPool pool("test", 64 * kMiB);
  const Slot slot = take(pool, kMiB);
  EXPECT_EQ(slot.pages, Slot::Pages::untouched);
  const ColdFill cold = pool.cold_fill(slot);
  std::vector<std::byte> bytes(kMiB / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  ASSERT_TRUE(cold.write(3 * kPage + 1, bytes));
  EXPECT_TRUE(std::ranges::equal(slot.memory.subspan(3 * kPage + 1, bytes.size()), bytes));
  EXPECT_EQ(slot.memory[3 * kPage], std::byte{0});
  EXPECT_EQ(slot.memory[3 * kPage + 1 + bytes.size()], std::byte{0});
  EXPECT_FALSE(cold.write(0, Bytes(bytes).first(kPage))) << "a copy is as fast";

  // The second slot of a segment has another offset in its file.
  const Slot second = take(pool, kMiB);
  ASSERT_EQ(second.id.segment, slot.id.segment);
  ASSERT_TRUE(pool.cold_fill(second).write(0, bytes));
  EXPECT_TRUE(std::ranges::equal(second.memory.first(bytes.size()), bytes));
  EXPECT_EQ(slot.memory[0], std::byte{0});
}

TEST(SlotPoolPages, WhatIsWarmOrSmallOrPassedOnIsNotFilledThroughAFile) {
  const std::vector<std::byte> bytes(128 * kKiB);
  SlotPool pool("test", 64 * kMiB);
  EXPECT_FALSE(ColdFill().write(0, bytes));
  const Slot small = take(pool, 128 * kKiB);
  EXPECT_FALSE(pool.cold_fill(small).write(0, bytes));
  const Slot first = take(pool, kMiB);
  pool.release(first.id);
  const Slot again = take(pool, kMiB);
  EXPECT_EQ(again.pages, Slot::Pages::touched);
  EXPECT_FALSE(pool.cold_fill(again).write(0, bytes));

  const Slot cold = take(pool, kMiB);
  const ColdFill before = pool.cold_fill(cold);
  for (const SegmentInfo& info : pool.ledger().segments_from(0)) info.segment->release_fd();
  EXPECT_TRUE(before.write(0, bytes)) << "it has a descriptor of its own";
  EXPECT_FALSE(pool.cold_fill(cold).write(0, bytes));
}

// The slot is taken before its turn: the thread that fills it makes its pages.
TEST(SlotPoolPages, PrefaultLeavesHeldSlotsAlone) {
  SlotPool pool("test", 4 * kPage);
  std::vector<Slot> held;
  ASSERT_TRUE(pool.prefault(1, 2,
                            [&] {
                              if (held.size() < 2) held.push_back(take(pool, 1));
                              return true;
                            })
                  .has_value());
  ASSERT_EQ(held.size(), 2u);
  for (const Slot& slot : held) EXPECT_EQ(resident_pages(slot.memory), 0u);
  EXPECT_EQ(counts(pool), (Counts{2, 0, 0}));
}

// Threads and chance ------------------------------------------------------------------------------

TEST(SlotPoolThreads, LoansReturnsAndPrefaultsAtOnce) {
  SlotPool pool("test", 16 * kPage);
  std::vector<std::thread> threads;
  std::vector<int> wrong(3);
  for (std::size_t id = 0; id < wrong.size(); ++id) {
    threads.emplace_back([&pool, &count = wrong[id], id] {
      for (int i = 0; i < 3000; ++i) {
        auto slot = pool.acquire(1 + static_cast<std::uint64_t>(i % 2) * kPage);
        if (!slot) continue;
        std::memset(slot->memory.data(), static_cast<int>(id) + 1, 64);
        if (i % 3 == 0) {
          pool.release(slot->id);
          continue;
        }
        if (!pool.ledger().mark_sent(slot->id)) ++count;
        for (std::size_t b = 0; b < 64; ++b)
          if (slot->memory[b] != static_cast<std::byte>(id + 1)) ++count;
        if (!pool.ledger().take_return(slot->id)) ++count;
        if (pool.ledger().take_return(slot->id)) ++count;
      }
    });
  }
  threads.emplace_back([&pool] {
    for (int i = 0; i < 200; ++i)
      if (!pool.prefault(1, 4, [] { return true; }).has_value()) break;
  });
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
  EXPECT_EQ(counts(pool), Counts{});
  EXPECT_LE(pool.stats().resident_bytes, 16 * kPage);
}

/// The expected behaviour of the pool in its simplest form: a list of uses.
class Reference {
 public:
  struct Use {
    SlotId id;
    std::byte* memory = nullptr;
    std::uint64_t slot_bytes = 0;
    State state = State::loaned;
    std::uint64_t stamp = 0;
  };
  std::vector<Use> uses;  // of every slot that is not free
  std::uint64_t ignored = 0;

  Use* find(SlotId id) {
    for (Use& use : uses)
      if (use.id == id) return &use;
    return nullptr;
  }
  void erase(SlotId id) {
    std::erase_if(uses, [id](const Use& use) { return use.id == id; });
  }
  std::uint64_t bytes(State state) const {
    std::uint64_t sum = 0;
    for (const Use& use : uses) sum += use.state == state ? use.slot_bytes : 0;
    return sum;
  }
  std::uint64_t count(State state) const {
    return static_cast<std::uint64_t>(std::count_if(
        uses.begin(), uses.end(), [state](const Use& use) { return use.state == state; }));
  }
};

TEST(SlotPoolModel, RandomCallsAgreeWithAReference) {
  const auto seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&random](std::uint64_t n) {
    return std::uniform_int_distribution<std::uint64_t>(0, n - 1)(random);
  };

  for (int round = 0; round < 20; ++round) {
    const std::uint64_t cap = kPage + below(200 * kPage);
    SlotPool pool("test", cap);
    Reference reference;
    std::vector<SlotId> past;  // every slot that was ever acquired, for wrong returns
    for (int step = 0; step < 1500; ++step) {
      // Any slot, mostly one in use, sometimes an old or made-up one.
      SlotId id{static_cast<std::uint32_t>(below(4)), static_cast<std::uint32_t>(below(70)),
                below(5)};
      if (!reference.uses.empty() && below(8) != 0)
        id = reference.uses[below(reference.uses.size())].id;
      else if (!past.empty() && below(2) != 0)
        id = past[below(past.size())];
      Reference::Use* use = reference.find(id);
      switch (below(16)) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4:
        case 5: {
          const std::uint64_t size = below(4) == 0 ? below(2 * cap) : below(3 * kPage);
          const auto slot = pool.acquire(size);
          if (size > cap) {
            ASSERT_FALSE(slot.has_value());
            ASSERT_EQ(slot.error().code, ErrorCode::message_too_large);
            break;
          }
          const std::uint64_t slot_bytes = SlotPool::slot_bytes_for(size);
          std::uint64_t held = 0;
          for (const auto& other : reference.uses) held += other.slot_bytes;
          // Never refused because of bytes that nobody holds; never granted above the cap.
          ASSERT_EQ(slot.has_value(), held + std::min(slot_bytes, cap) <= cap)
              << "held " << held << " cap " << cap << " size " << size;
          if (!slot) {
            ASSERT_EQ(slot.error().code, ErrorCode::resource_exhausted);
            break;
          }
          ASSERT_EQ(slot->memory.size(), slot_bytes);
          for (const auto& other : reference.uses) {
            ASSERT_TRUE(slot->memory.data() + slot_bytes <= other.memory ||
                        other.memory + other.slot_bytes <= slot->memory.data())
                << "two holders of one byte";
          }
          const std::uint64_t stamp = random();
          std::memcpy(slot->memory.data() + slot_bytes - 8, &stamp, 8);
          reference.uses.push_back(
              {slot->id, slot->memory.data(), slot_bytes, State::loaned, stamp});
          past.push_back(slot->id);
          break;
        }
        case 6:
        case 7:
          pool.release(id);
          if (use != nullptr && use->state == State::loaned) reference.erase(id);
          break;
        case 8:
        case 9:
        case 10:
          ASSERT_EQ(pool.ledger().mark_sent(id), use != nullptr && use->state == State::loaned);
          if (use != nullptr && use->state == State::loaned) use->state = State::sent;
          break;
        case 11:
          ASSERT_EQ(pool.ledger().unmark_sent(id), use != nullptr && use->state == State::sent);
          if (use != nullptr && use->state == State::sent) use->state = State::loaned;
          break;
        case 12:
        case 13:
        case 14: {
          const bool known = use != nullptr && use->state != State::loaned;
          ASSERT_EQ(pool.ledger().take_return(id), known);
          if (known)
            reference.erase(id);
          else
            ++reference.ignored;
          break;
        }
        default:
          switch (below(4)) {
            case 0:
              pool.ledger().quarantine_sent();
              for (auto& other : reference.uses)
                if (other.state == State::sent) other.state = State::quarantined;
              break;
            case 1:
              pool.ledger().free_sent();
              std::erase_if(reference.uses,
                            [](const auto& other) { return other.state != State::loaned; });
              break;
            default:
              // A prefault may fail because bytes or segments have run out.
              (void)pool.prefault(below(3 * kPage), static_cast<std::uint32_t>(below(5)),
                                  [] { return true; });
          }
      }
      for (const auto& other : reference.uses) {
        std::uint64_t stamp = 0;
        std::memcpy(&stamp, other.memory + other.slot_bytes - 8, 8);
        ASSERT_EQ(stamp, other.stamp) << "bytes of a held slot changed";
      }
      const SlotPoolStats stats = pool.stats();
      ASSERT_EQ(stats.loaned_count, reference.count(State::loaned));
      ASSERT_EQ(stats.sent_count, reference.count(State::sent));
      ASSERT_EQ(stats.sent_bytes, reference.bytes(State::sent));
      ASSERT_EQ(stats.quarantined_count, reference.count(State::quarantined));
      ASSERT_EQ(stats.quarantined_bytes, reference.bytes(State::quarantined));
      ASSERT_EQ(stats.ignored_returns, reference.ignored);
      ASSERT_LE(stats.resident_bytes, cap);
    }
  }
}

// A loan may be dropped in a child that was made while another thread was in the pool.
TEST(SlotPool, AReleaseInAForkedChildWaitsForNobody) {
  SlotPool pool("p", 10 * kMiB);
  const Slot slot = take(pool, kPage);
  int status = 0;
  {
    const auto ledger = pool.ledger();
    status = test::run_in_child([&] {
      pool.release(slot.id);
      return 0;
    });
  }
  EXPECT_TRUE(test::exited_with(status, 0)) << status;
  pool.release(slot.id);
  EXPECT_EQ(pool.stats().loaned_count, 0u);
}

// A GPU has the pages of slots, which therefore stay.
TEST(SlotPoolTest, PagesThatAreKeptStayAndLeaveRoomForOtherSizes) {
  constexpr std::uint64_t kOneMiB = 1 << 20;
  SlotPool pool("test", 8 * kOneMiB);
  std::vector<Slot> small;
  for (int i = 0; i < 8; ++i) small.push_back(pool.acquire(kOneMiB).value());
  small.front().memory[0] = std::byte{7};
  pool.keep_pages();
  EXPECT_TRUE(fails_with(pool.acquire(kOneMiB / 2), ErrorCode::resource_exhausted, "have pages"));
  for (const Slot& slot : small) pool.release(slot.id);
  const auto large = pool.acquire(8 * kOneMiB);
  ASSERT_TRUE(succeeds(large)) << "beside what stays";
  EXPECT_EQ(pool.stats().resident_bytes, 16 * kOneMiB);
  EXPECT_EQ(small.front().memory[0], std::byte{7});
  pool.release(large->id);
  const auto other = pool.acquire(2 * kOneMiB);
  ASSERT_TRUE(succeeds(other)) << "a free slot that is larger";
  EXPECT_EQ(other->memory.size(), 8 * kOneMiB);
  EXPECT_EQ(pool.stats().resident_bytes, 16 * kOneMiB);
}

// No returned slot would ever make room for them.
TEST(SlotPoolTest, OneSlotOfEachSizeHasRoomBesidePagesThatStay) {
  constexpr std::uint64_t kOneMiB = 1 << 20;
  SlotPool pool("test", 8 * kOneMiB);
  pool.keep_pages();
  for (const std::uint64_t size : {kOneMiB, 2 * kOneMiB}) {
    std::vector<Slot> all;
    for (std::uint64_t i = 0; i < 8 * kOneMiB / size; ++i)
      all.push_back(pool.acquire(size).value());
    for (const Slot& slot : all) pool.release(slot.id);
  }
  EXPECT_EQ(pool.stats().resident_bytes, 16 * kOneMiB);
  const auto large = pool.acquire(4 * kOneMiB);
  ASSERT_TRUE(succeeds(large));
  EXPECT_TRUE(fails_with(pool.acquire(4 * kOneMiB), ErrorCode::resource_exhausted)) << "one";
  pool.release(large->id);
  EXPECT_TRUE(succeeds(pool.acquire(4 * kOneMiB)));
}

}  // namespace
}  // namespace tendon::v0::detail
