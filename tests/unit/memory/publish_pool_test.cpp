// SPDX-License-Identifier: Apache-2.0
#include "memory/publish_pool.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "support/child.hpp"
#include "support/expect.hpp"

namespace tendon::v0::detail {
namespace {

using test::fails_with;
using Window = PublishPool::Window;
using detail::Death;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMiB = 1024 * 1024;

std::shared_ptr<PublishedSlot> take(PublishPool& pool, std::uint64_t size_bytes) {
  auto slot = pool.acquire(size_bytes);
  EXPECT_TRUE(slot.has_value()) << (slot ? "" : slot.error().message());
  return slot ? *std::move(slot) : nullptr;
}

struct Fixture : testing::Test {
  std::shared_ptr<PublishPool> pool = std::make_shared<PublishPool>(64 * kPage);
  PublishPool::LinkNumber a = pool->add_link("vision", 4);
  PublishPool::LinkNumber b = pool->add_link("audio", 4);
  [[nodiscard]] std::uint64_t used() const { return pool->stats().slots.loaned_count; }
};
class Holds : public Fixture {};

TEST_F(Holds, ASlotIsFreeWhenNoHoldIsLeft) {
  auto slot = take(*pool, 100);
  const SlotId id = slot->id();
  EXPECT_GE(id.segment, PublishPool::kFirstSegment);
  ASSERT_EQ(pool->give(a, *slot), Window::open);
  ASSERT_EQ(pool->give(a, *slot), Window::open);  // another pipe of the same link
  ASSERT_EQ(pool->give(b, *slot), Window::open);
  EXPECT_EQ(pool->stats().holds, 3u);
  slot.reset();
  EXPECT_EQ(used(), 1u) << "the owner alone has dropped it";
  EXPECT_TRUE(pool->take_return(a, id));
  EXPECT_TRUE(pool->take_return(b, id));
  EXPECT_EQ(used(), 1u) << "one pipe of a still has it";
  EXPECT_TRUE(pool->take_return(a, id));
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(pool->stats().holds, 0u);
}

TEST_F(Holds, TheOwnerIsAHolder) {
  auto slot = take(*pool, 100);
  const auto history = slot;
  ASSERT_EQ(pool->give(a, *slot), Window::open);
  EXPECT_TRUE(pool->take_return(a, slot->id()));
  slot.reset();
  EXPECT_EQ(used(), 1u);
}

TEST_F(Holds, ReturnsThatAreNotInTheLedgerAreCountedAndIgnored) {
  auto slot = take(*pool, 100);
  const SlotId id = slot->id();
  ASSERT_EQ(pool->give(a, *slot), Window::open);
  slot.reset();
  SlotId other = id;
  EXPECT_FALSE(pool->take_return(b, id)) << "b never had it";
  EXPECT_FALSE(pool->take_return(77, id)) << "no such link";
  other.generation += 1;
  EXPECT_FALSE(pool->take_return(a, other));
  other = id;
  other.slot = ~0u;
  EXPECT_FALSE(pool->take_return(a, other));
  other = id;
  other.segment = ~0u;
  EXPECT_FALSE(pool->take_return(a, other));
  other.segment = 0;  // of a link's own segment
  EXPECT_FALSE(pool->take_return(a, other));
  EXPECT_EQ(pool->stats().ignored_returns, 6u);
  EXPECT_EQ(used(), 1u);
  EXPECT_TRUE(pool->take_return(a, id));
  EXPECT_FALSE(pool->take_return(a, id)) << "each hold returns once";
  EXPECT_EQ(used(), 0u);
}

TEST_F(Holds, AnOldReturnDoesNotEndTheNextUse) {
  auto slot = take(*pool, 100);
  const SlotId first = slot->id();
  slot.reset();
  slot = take(*pool, 100);
  ASSERT_EQ(slot->id().slot, first.slot);
  ASSERT_EQ(pool->give(a, *slot), Window::open);
  EXPECT_FALSE(pool->take_return(a, first));
  EXPECT_EQ(pool->stats().holds, 1u);
}

TEST_F(Holds, DeathFreesTheLinksHoldsAlone) {
  auto slot = take(*pool, 100);
  const SlotId id = slot->id();
  for (const auto link : {a, a, b}) ASSERT_EQ(pool->give(link, *slot), Window::open);
  slot.reset();
  pool->end_link(a, Death::proved);
  EXPECT_EQ(pool->stats().holds, 1u);
  EXPECT_EQ(used(), 1u);
  EXPECT_FALSE(pool->take_return(a, id));
  EXPECT_TRUE(pool->take_return(b, id));
  EXPECT_EQ(used(), 0u);
}

TEST_F(Holds, FailureWithoutProofQuarantinesThemAlone) {
  auto slot = take(*pool, 100);
  const SlotId id = slot->id();
  for (const auto link : {a, b}) ASSERT_EQ(pool->give(link, *slot), Window::open);
  pool->end_link(a, Death::not_proved);
  EXPECT_EQ(pool->stats().quarantined, 1u);
  EXPECT_EQ(pool->give(a, *slot), Window::closed);
  EXPECT_EQ(pool->give(b, *slot), Window::open) << "others go on";
  slot.reset();
  EXPECT_TRUE(pool->take_return(b, id));
  EXPECT_TRUE(pool->take_return(b, id));
  EXPECT_EQ(used(), 1u);
  EXPECT_TRUE(pool->take_return(a, id)) << "a late return counts";
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(pool->stats().quarantined, 0u);

  slot = take(*pool, 100);
  const auto c = pool->add_link("c", 1);
  ASSERT_EQ(pool->give(c, *slot), Window::open);
  slot.reset();
  pool->end_link(c, Death::not_proved);
  EXPECT_EQ(used(), 1u);
  pool->end_link(c, Death::proved);  // the proof arrives later
  EXPECT_EQ(used(), 0u);
}

TEST_F(Holds, ARetiredLinkReturnsWhatItHas) {
  auto slot = take(*pool, 100);
  const SlotId id = slot->id();
  ASSERT_EQ(pool->give(a, *slot), Window::open);
  pool->retire_link(a);
  EXPECT_EQ(pool->give(a, *slot), Window::closed);
  slot.reset();
  EXPECT_EQ(used(), 1u);
  EXPECT_EQ(pool->holds_of(a), 1u);
  EXPECT_TRUE(pool->take_return(a, id));
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(pool->holds_of(a), 0u);
}

TEST_F(Holds, ALinkHasAsManyAsItHasPlaces) {
  const auto slot = take(*pool, 100);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pool->give(a, *slot), Window::open);
  EXPECT_EQ(pool->give(a, *slot), Window::beyond_share);
  EXPECT_EQ(pool->give(b, *slot), Window::open) << "others go on";
  pool->take_back(a, slot->id());
  EXPECT_EQ(pool->give(a, *slot), Window::open);
}

TEST_F(Holds, ALinkHoldsHalfOfThePool) {
  const auto many = pool->add_link("many", 1000);
  std::vector<std::shared_ptr<PublishedSlot>> slots;
  for (int i = 0; i < 33; ++i) slots.push_back(take(*pool, kPage));
  for (int i = 0; i < 32; ++i) EXPECT_EQ(pool->give(many, *slots[i]), Window::open) << i;
  EXPECT_EQ(pool->give(many, *slots[32]), Window::beyond_share);
  EXPECT_EQ(pool->give(many, *slots[0]), Window::open) << "no further bytes";
  EXPECT_EQ(pool->give(a, *slots[32]), Window::open);
}

TEST_F(Holds, BeyondItsShareALinkGetsNone) {
  constexpr std::uint64_t kShare = 4 * kPage;
  const auto keeper = pool->add_link("keeper", 1000);
  std::vector<std::shared_ptr<PublishedSlot>> slots;
  for (int i = 0; i < 6; ++i) slots.push_back(take(*pool, kPage));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pool->give(keeper, *slots[i], kShare), Window::open);
  EXPECT_EQ(pool->give(keeper, *slots[4], kShare), Window::beyond_share);
  EXPECT_EQ(pool->give(keeper, *slots[0], kShare), Window::open) << "it has that slot";
  EXPECT_EQ(pool->give(a, *slots[4], kShare), Window::open) << "others have their own";
  EXPECT_TRUE(pool->take_return(keeper, slots[1]->id()));
  EXPECT_EQ(pool->give(keeper, *slots[4], kShare), Window::open);
  EXPECT_EQ(pool->give(keeper, *slots[5], kShare), Window::beyond_share);
}

TEST_F(Holds, OneIsReadWhileTheNextIsOnItsWayHoweverLarge) {
  std::vector<std::shared_ptr<PublishedSlot>> slots;
  for (int i = 0; i < 3; ++i) slots.push_back(take(*pool, 8 * kPage));
  EXPECT_EQ(pool->give(a, *slots[0], kPage), Window::open);
  EXPECT_EQ(pool->give(a, *slots[1], kPage), Window::open);
  EXPECT_EQ(pool->give(a, *slots[2], kPage), Window::beyond_share);
}

TEST_F(Holds, TheOwnerKeepsTwoSlotsOfAnySizeFromAllLinksTogether) {
  constexpr std::uint64_t kSlot = 8 * kPage;  // the pool has eight of them
  std::vector<std::shared_ptr<PublishedSlot>> slots;
  for (int i = 0; i < 8; ++i) slots.push_back(take(*pool, kSlot));
  std::vector<PublishPool::LinkNumber> links;
  for (int i = 0; i < 8; ++i) links.push_back(pool->add_link("keeper", 10));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(pool->give(links[i], *slots[i]), Window::open) << i;
  EXPECT_EQ(pool->give(links[6], *slots[6]), Window::beyond_share);
  EXPECT_EQ(pool->give(links[7], *slots[0]), Window::open) << "a link has that one anyway";
  const SlotId first = slots[0]->id();
  slots.clear();
  auto one = take(*pool, kSlot);
  auto other = take(*pool, kSlot);
  EXPECT_TRUE(fails_with(pool->acquire(kSlot), ErrorCode::resource_exhausted));
  pool->end_link(links[0], Death::proved);
  EXPECT_EQ(pool->give(links[6], *one), Window::beyond_share) << "the slot has another reader";
  EXPECT_TRUE(pool->take_return(links[7], first));
  EXPECT_EQ(pool->give(links[6], *one), Window::open);
}

TEST_F(Holds, WhatReadersOverSocketsHoldIsCountedOnceForEachSlot) {
  using Reads = PublishPool::Reads;
  const auto c = pool->add_link("c", 4, Reads::over_socket);
  const auto d = pool->add_link("d", 4, Reads::over_socket);
  const auto one = take(*pool, kPage);
  const auto two = take(*pool, 2 * kPage);
  ASSERT_EQ(pool->give(a, *one), Window::open);
  EXPECT_EQ(pool->sending_bytes(), 0u) << "a reads in place";
  for (const auto link : {c, c, d}) ASSERT_EQ(pool->give(link, *one), Window::open);
  EXPECT_EQ(pool->sending_bytes(), kPage);
  ASSERT_EQ(pool->give(d, *two), Window::open);
  EXPECT_EQ(pool->sending_bytes(), 3 * kPage);
  pool->count_copy(100);
  EXPECT_EQ(pool->sending_bytes(), 3 * kPage + 100);
  pool->uncount_copy(100);
  pool->take_back(d, one->id());
  pool->take_back(c, one->id());
  EXPECT_EQ(pool->sending_bytes(), 3 * kPage) << "c has it still";
  pool->take_back(c, one->id());
  EXPECT_EQ(pool->sending_bytes(), 2 * kPage);
  pool->end_link(d, Death::proved);
  EXPECT_EQ(pool->sending_bytes(), 0u);
}

TEST_F(Holds, ExhaustionNamesTheReaderThatHoldsMost) {
  std::vector<std::shared_ptr<PublishedSlot>> slots;
  for (int i = 0; i < 64; ++i) slots.push_back(take(*pool, kPage));
  ASSERT_EQ(pool->give(b, *slots[0]), Window::open);
  EXPECT_TRUE(
      fails_with(pool->acquire(1), ErrorCode::resource_exhausted, "audio: 1 holds of 4096 bytes"));
  EXPECT_TRUE(fails_with(pool->acquire(64 * kPage + 1), ErrorCode::message_too_large,
                         "ContextOptions::publish_bytes"));
}

TEST_F(Holds, SegmentsKeepTheirDescriptorsAndTakeNoFurtherWriters) {
  const auto slot = take(*pool, 100);
  const SegmentInfo info = pool->segment_of(*slot);
  EXPECT_EQ(info.id, slot->id().segment);
  EXPECT_EQ(info.slot_bytes, kPage);
  ASSERT_GE(info.segment->fd(), 0);
  std::memset(slot->memory().data(), 7, 100);
  auto attached = Segment::attach_published(OwnedFd(dup(info.segment->fd())),
                                            info.slot_bytes * info.slot_count);
  ASSERT_TRUE(attached.has_value());
  EXPECT_EQ((*attached)->data()[info.slot_bytes * slot->id().slot], std::byte{7});
}

// Linux does not free their pages, and a cap may differ from all slot sizes.
TEST_F(Holds, ResidentIsWhatTheSystemHasGiven) {
  constexpr std::uint64_t kCap = 5 * kMiB;
  const auto capped = std::make_shared<PublishPool>(kCap);
  std::vector<std::shared_ptr<Segment>> files;
  const auto given_bytes = [&] {
    std::map<ino_t, std::uint64_t> bytes;
    for (const auto& file : files) {
      struct stat status = {};
      EXPECT_EQ(fstat(file->fd(), &status), 0);
      bytes[status.st_ino] = static_cast<std::uint64_t>(status.st_blocks) * 512;
    }
    std::uint64_t sum = 0;
    for (const auto& [file, its] : bytes) sum += its;
    return sum;
  };
  for (const std::uint64_t size : {kCap, kMiB, kMiB / 4, 3 * kMiB, kMiB, kCap}) {
    SCOPED_TRACE(size);
    std::vector<std::shared_ptr<PublishedSlot>> slots;
    while (slots.size() <= kCap / size) {
      auto slot = capped->acquire(size);
      if (!slot) break;
      std::memset((*slot)->memory().data(), 1, size);
      files.push_back(capped->segment_of(**slot).segment);
      slots.push_back(*std::move(slot));
    }
    EXPECT_FALSE(slots.empty());
    EXPECT_LE(given_bytes(), capped->stats().slots.resident_bytes);
    EXPECT_LE(capped->stats().slots.resident_bytes, kCap);
  }
}

TEST_F(Holds, AShareMayBeDroppedInAForkedChild) {
  auto slot = take(*pool, 100);
  // In some of the children a thread that does not exist there holds the lock.
  std::jthread inside([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) (void)pool->stats();
  });
  for (int round = 0; round < 50; ++round) {
    const int status = test::run_in_child([&] {
      alarm(static_cast<unsigned>(test::kPatience.count()));  // a hung child is killed
      slot.reset();
      return 0;
    });
    ASSERT_TRUE(test::exited_with(status, 0)) << status;
  }
  EXPECT_EQ(used(), 1u);
}

TEST_F(Holds, ManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const auto link = pool->add_link("thread", 8);
      for (int i = 0; i < 2000; ++i) {
        auto slot = pool->acquire(kPage);
        if (!slot) continue;
        const SlotId id = (*slot)->id();
        const bool given = pool->give(link, **slot) == Window::open;
        slot->reset();
        EXPECT_EQ(pool->take_return(link, id), given);
      }
      pool->end_link(link, Death::proved);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(used(), 0u);
}

// A plain model -----------------------------------------------------------------------------------

struct Model {
  enum class Standing { live, retired, quarantined, gone };
  struct Link {
    PublishPool::LinkNumber number;
    std::uint32_t places;
    PublishPool::Reads reads;
    Standing standing = Standing::live;
  };
  struct Use {
    SlotId id;
    std::byte* memory;
    std::uint64_t bytes;
    std::uint64_t stamp;
    std::shared_ptr<PublishedSlot> owner;
    std::map<std::size_t, std::uint32_t> holds;  // by index of the link: one for each pipe
  };
  std::vector<Link> links;
  std::vector<Use> uses;

  std::uint64_t holds_of(std::size_t link) const {
    std::uint64_t count = 0;
    for (const Use& use : uses)
      if (use.holds.contains(link)) count += use.holds.at(link);
    return count;
  }
  std::uint64_t bytes_of(std::size_t link) const {
    std::uint64_t bytes = 0;
    for (const Use& use : uses)
      if (use.holds.contains(link)) bytes += use.bytes;
    return bytes;
  }
  std::uint64_t sending_bytes() const {
    std::uint64_t bytes = 0;
    for (const Use& use : uses) {
      const bool is_sent = std::ranges::any_of(use.holds, [&](const auto& hold) {
        return links[hold.first].reads == PublishPool::Reads::over_socket;
      });
      if (is_sent) bytes += use.bytes;
    }
    return bytes;
  }
  void end_hold(Use& use, std::size_t link) {
    if (--use.holds.at(link) == 0) use.holds.erase(link);
  }
  // Forgets slots that nobody may read: they may be used again.
  void forget_unheld() {
    std::erase_if(uses, [](const Use& use) { return use.owner == nullptr && use.holds.empty(); });
  }
};

// Publishes, returns, deaths, quarantines, late returns, several pipes a link, in random order. A
// slot is never used again while a reader may read it, and always after that.
TEST(HoldsModel, RandomCallsAgreeWithAPlainModel) {
  const auto seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&random](std::uint64_t n) {
    return std::uniform_int_distribution<std::uint64_t>(0, n - 1)(random);
  };
  for (int round = 0; round < 20; ++round) {
    const std::uint64_t cap = (8 + below(60)) * kPage;
    const auto pool = std::make_shared<PublishPool>(cap);
    Model model;
    std::vector<SlotId> past;
    std::uint64_t ignored = 0;
    for (int step = 0; step < 2000; ++step) {
      if (model.links.size() < 3 || below(40) == 0) {
        const auto places = static_cast<std::uint32_t>(1 + below(12));
        const auto reads =
            below(2) == 0 ? PublishPool::Reads::in_place : PublishPool::Reads::over_socket;
        model.links.push_back({pool->add_link("link", places, reads), places, reads});
      }
      const std::size_t at =
          model.links.size() - 1 - below(std::min<std::size_t>(5, model.links.size()));
      Model::Link& link = model.links[at];
      Model::Use* const use = model.uses.empty() ? nullptr : &model.uses[below(model.uses.size())];
      switch (below(14)) {
        case 0:
        case 1:
        case 2: {
          const std::uint64_t size = 1 + below(3 * kPage);
          std::uint64_t in_use = 0;
          for (const auto& other : model.uses) in_use += other.bytes;
          auto slot = pool->acquire(size);
          const std::uint64_t bytes =
              slot ? (*slot)->memory().size() : SlotPool::slot_bytes_for(size);
          // Memory of free slots of other sizes may be in the way.
          ASSERT_TRUE(!slot || in_use + bytes <= cap) << "in use " << in_use;
          ASSERT_LE(pool->stats().slots.resident_bytes, cap);
          if (!slot) break;
          for (const auto& other : model.uses) {
            ASSERT_TRUE((*slot)->memory().data() + bytes <= other.memory ||
                        other.memory + other.bytes <= (*slot)->memory().data())
                << "used again while somebody may read it";
          }
          const std::uint64_t stamp = random();
          std::memcpy((*slot)->memory().data() + bytes - 8, &stamp, 8);
          past.push_back((*slot)->id());
          model.uses.push_back(
              {(*slot)->id(), (*slot)->memory().data(), bytes, stamp, *std::move(slot), {}});
          break;
        }
        case 3:
        case 4:
        case 5:
        case 6: {  // shown to one more pipe of this link
          if (use == nullptr || use->owner == nullptr) break;
          const std::uint64_t share = below(cap);
          std::uint64_t held = 0;
          for (const auto& other : model.uses) held += other.holds.empty() ? 0 : other.bytes;
          const bool leaves_owner = !use->holds.empty() || held + 3 * use->bytes <= cap;
          const bool in_share =
              model.bytes_of(at) + use->bytes <= std::max(std::min(share, cap / 2), 2 * use->bytes);
          const bool fits = use->holds.contains(at) || (in_share && leaves_owner);
          const auto expected = link.standing != Model::Standing::live     ? Window::closed
                                : model.holds_of(at) < link.places && fits ? Window::open
                                                                           : Window::beyond_share;
          ASSERT_EQ(pool->give(link.number, *use->owner, share), expected);
          if (expected == Window::open) ++use->holds[at];
          break;
        }
        case 7:
          if (use != nullptr) use->owner.reset();
          break;
        case 8:
        case 9:
        case 10: {  // honest, late, twice, or of a slot that was never used
          SlotId id = use != nullptr ? use->id : SlotId{PublishPool::kFirstSegment, 0, 1};
          if (below(4) == 0 && !past.empty()) id = past[below(past.size())];
          if (below(10) == 0) id.segment ^= PublishPool::kFirstSegment;
          Model::Use* known = nullptr;
          for (auto& other : model.uses)
            if (other.id == id && other.holds.contains(at)) known = &other;
          ASSERT_EQ(pool->take_return(link.number, id), known != nullptr);
          if (known != nullptr)
            model.end_hold(*known, at);
          else
            ++ignored;
          break;
        }
        case 11:
          if (use != nullptr && use->holds.contains(at)) {
            pool->take_back(link.number, use->id);
            model.end_hold(*use, at);
          }
          break;
        default:
          switch (below(8)) {
            case 0:
              pool->end_link(link.number, Death::proved);
              link.standing = Model::Standing::gone;
              for (auto& other : model.uses) other.holds.erase(at);
              break;
            case 1:
              pool->end_link(link.number, Death::not_proved);
              link.standing = Model::Standing::quarantined;
              break;
            case 2:
              pool->retire_link(link.number);
              if (link.standing == Model::Standing::live) link.standing = Model::Standing::retired;
              break;
            default:
              break;
          }
      }
      model.forget_unheld();
      std::uint64_t holds = 0;
      for (std::size_t i = 0; i < model.links.size(); ++i) {
        ASSERT_EQ(pool->holds_of(model.links[i].number), model.holds_of(i)) << "link " << i;
        holds += model.holds_of(i);
      }
      for (const auto& other : model.uses) {
        std::uint64_t stamp = 0;
        std::memcpy(&stamp, other.memory + other.bytes - 8, 8);
        ASSERT_EQ(stamp, other.stamp) << "bytes that somebody may read have changed";
      }
      const PublishPoolStats stats = pool->stats();
      ASSERT_EQ(stats.slots.loaned_count, model.uses.size());
      ASSERT_EQ(stats.holds, holds);
      ASSERT_EQ(pool->sending_bytes(), model.sending_bytes());
      ASSERT_EQ(stats.ignored_returns, ignored);
    }
    for (auto& other : model.uses) other.owner.reset();
    for (const auto& link : model.links) pool->end_link(link.number, Death::proved);
    ASSERT_EQ(pool->stats().slots.loaned_count, 0u);
  }
}

}  // namespace
}  // namespace tendon::v0::detail
