// SPDX-License-Identifier: Apache-2.0
#include "memory/hold_ledger.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/child.hpp"
#include "support/expect.hpp"

namespace tendon::v0::detail {
namespace {

using Left = HoldLedger::Left;
using Window = HoldLedger::Window;
using Reads = HoldLedger::Reads;

// Neither the first number nor the sizes are those of the publish pool.
constexpr std::uint32_t kFirst = 3u << 30;
constexpr std::uint64_t kSlot = 3 * 4096;
constexpr std::uint64_t kCap = 64 * kSlot;
constexpr std::uint64_t kWhole = HoldLedger::kWholeShare;

struct Fixture : testing::Test {
  HoldLedger ledger{kCap};
  HoldLedger::LinkNumber a = ledger.add_link("vision", 4, Reads::in_place);
  HoldLedger::LinkNumber b = ledger.add_link("audio", 4, Reads::in_place);

  SlotId begin(std::uint32_t slot, std::uint64_t generation = 1) {
    const SlotId id{kFirst, slot, generation};
    ledger.begin(id, kSlot);
    return id;
  }
  [[nodiscard]] Window give(HoldLedger::LinkNumber link, SlotId id, std::uint64_t share = kWhole) {
    return ledger.give(link, id, share);
  }
};
class LedgerOfHolds : public Fixture {};

TEST_F(LedgerOfHolds, TheLastHoldFreesTheSlotWhicheverItIs) {
  const SlotId alone = begin(0);
  EXPECT_TRUE(ledger.drop_owner(alone)) << "nobody else had it";
  EXPECT_FALSE(ledger.drop_owner(alone)) << "it is free once";

  const SlotId returned = begin(1);
  for (const auto link : {a, a, b}) ASSERT_EQ(give(link, returned), Window::open);
  EXPECT_FALSE(ledger.drop_owner(returned));
  EXPECT_EQ(ledger.take_return(a, returned), Left::holds);
  EXPECT_EQ(ledger.take_return(b, returned), Left::holds);
  EXPECT_EQ(ledger.take_return(a, returned), Left::none);

  const SlotId kept = begin(2);
  ASSERT_EQ(give(a, kept), Window::open);
  EXPECT_EQ(ledger.take_return(a, kept), Left::holds) << "the owner has it";
  EXPECT_TRUE(ledger.drop_owner(kept));

  const SlotId not_shown = begin(3);
  ASSERT_EQ(give(a, not_shown), Window::open);
  EXPECT_FALSE(ledger.drop_owner(not_shown));
  EXPECT_EQ(ledger.take_back(a, not_shown), Left::none);
  EXPECT_EQ(ledger.take_back(a, not_shown), Left::as_was);
  EXPECT_EQ(ledger.stats().holds, 0u);
  EXPECT_EQ(ledger.stats().ignored_returns, 0u);
}

TEST_F(LedgerOfHolds, SaysWhichLinksHoldHowMuch) {
  const SlotId first = begin(0);
  const SlotId second = begin(1);
  EXPECT_TRUE(ledger.holders().empty());
  ASSERT_EQ(give(a, first), Window::open);
  ASSERT_EQ(give(a, first), Window::open);
  ASSERT_EQ(give(a, second), Window::open);
  ASSERT_EQ(give(b, second), Window::open);
  const auto holders = ledger.holders();
  ASSERT_EQ(holders.size(), 2u);
  EXPECT_EQ(holders[0].count, 3u);
  EXPECT_EQ(holders[0].bytes, 2 * holders[1].bytes) << "each slot counts once";
  EXPECT_EQ(holders[1].count, 1u);
  EXPECT_NE(holders[0].name, holders[1].name);
  EXPECT_EQ(ledger.take_return(b, second), Left::holds);
  EXPECT_EQ(ledger.holders().size(), 1u);
}

TEST_F(LedgerOfHolds, ReturnsThatAreNotInItAreCountedAndIgnored) {
  const SlotId id = begin(0);
  ASSERT_EQ(give(a, id), Window::open);
  EXPECT_FALSE(ledger.drop_owner(id));
  EXPECT_EQ(ledger.take_return(b, id), Left::as_was) << "b never had it";
  EXPECT_EQ(ledger.take_return(77, id), Left::as_was) << "no such link";
  for (const SlotId other :
       {SlotId{kFirst, 0, 0}, SlotId{kFirst, 0, 2}, SlotId{kFirst, 1, 1}, SlotId{kFirst, ~0u, 1},
        SlotId{kFirst + 1, 0, 1}, SlotId{kFirst - 1, 0, 1}, SlotId{0, 0, 1}, SlotId{~0u, 0, 1}}) {
    EXPECT_EQ(ledger.take_return(a, other), Left::as_was)
        << other.segment << ' ' << other.slot << ' ' << other.generation;
  }
  EXPECT_EQ(ledger.stats().ignored_returns, 10u);
  EXPECT_EQ(ledger.stats().holds, 1u);
  EXPECT_EQ(ledger.take_return(a, id), Left::none);
  EXPECT_EQ(ledger.take_return(a, id), Left::as_was) << "each hold returns once";
}

TEST_F(LedgerOfHolds, AnOldReturnDoesNotEndTheNextUse) {
  const SlotId first = begin(0);
  ASSERT_TRUE(ledger.drop_owner(first));
  const SlotId second = begin(0, 2);
  ASSERT_EQ(give(a, second), Window::open);
  EXPECT_EQ(ledger.take_return(a, first), Left::as_was);
  EXPECT_FALSE(ledger.drop_owner(first)) << "nor does a late drop";
  EXPECT_EQ(give(a, first), Window::closed);
  EXPECT_EQ(ledger.stats().holds, 1u);
}

TEST_F(LedgerOfHolds, DeathFreesWhatTheLinkAloneHad) {
  std::vector<SlotId> ids;
  for (std::uint32_t slot = 0; slot < 4; ++slot) ids.push_back(begin(slot));
  for (const SlotId id : ids) ASSERT_EQ(give(a, id), Window::open);
  ASSERT_EQ(give(b, ids[1]), Window::open);
  for (const std::size_t slot : {0u, 1u, 3u}) EXPECT_FALSE(ledger.drop_owner(ids[slot]));
  EXPECT_EQ(ledger.end_link(a, Death::proved), (std::vector<SlotId>{ids[0], ids[3]}))
      << "b has slot 1, and the owner slot 2";
  EXPECT_TRUE(ledger.end_link(a, Death::proved).empty());
  EXPECT_EQ(ledger.take_return(a, ids[0]), Left::as_was);
  EXPECT_EQ(give(a, ids[2]), Window::closed);
  EXPECT_EQ(ledger.take_return(b, ids[1]), Left::none);
  EXPECT_TRUE(ledger.drop_owner(ids[2]));
}

TEST_F(LedgerOfHolds, FailureWithoutProofQuarantinesThem) {
  const SlotId early = begin(0);
  const SlotId late = begin(1);
  for (const SlotId id : {early, late}) {
    ASSERT_EQ(give(a, id), Window::open);
    EXPECT_FALSE(ledger.drop_owner(id));
  }
  EXPECT_TRUE(ledger.end_link(a, Death::not_proved).empty());
  EXPECT_EQ(ledger.stats().quarantined, 2u);
  EXPECT_EQ(give(a, early), Window::closed);
  EXPECT_EQ(ledger.take_return(a, early), Left::none) << "a late return counts";
  EXPECT_EQ(ledger.stats().quarantined, 1u);
  EXPECT_EQ(ledger.end_link(a, Death::proved), std::vector<SlotId>{late});
  EXPECT_EQ(ledger.stats().holds, 0u);

  EXPECT_TRUE(ledger.end_link(b, Death::not_proved).empty());
  EXPECT_EQ(give(b, begin(2)), Window::closed) << "one without holds is gone at once";
}

TEST_F(LedgerOfHolds, ARetiredLinkReturnsWhatItHas) {
  const SlotId id = begin(0);
  ASSERT_EQ(give(a, id), Window::open);
  ledger.retire_link(a);
  ledger.retire_link(b);
  EXPECT_EQ(give(a, id), Window::closed);
  EXPECT_EQ(give(b, id), Window::closed);
  EXPECT_EQ(ledger.holds_of(a), 1u);
  EXPECT_FALSE(ledger.drop_owner(id));
  EXPECT_EQ(ledger.take_return(a, id), Left::none);
  EXPECT_EQ(ledger.holds_of(a), 0u);
}

TEST_F(LedgerOfHolds, ALinkHasAsManyHoldsAsPlaces) {
  const SlotId id = begin(0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(give(a, id), Window::open);
  EXPECT_EQ(give(a, id), Window::beyond_share);
  EXPECT_EQ(give(b, id), Window::open) << "others have their own";
  EXPECT_EQ(ledger.take_back(a, id), Left::holds);
  EXPECT_EQ(give(a, id), Window::open);
}

TEST_F(LedgerOfHolds, SharesAreCountedInBytesOfSlots) {
  const auto many = ledger.add_link("many", 1000, Reads::in_place);
  const auto half = static_cast<std::uint32_t>(kCap / kSlot / 2);
  std::vector<SlotId> ids;
  for (std::uint32_t slot = 0; slot < half + 2; ++slot) ids.push_back(begin(slot));
  for (std::uint32_t slot = 0; slot < 4; ++slot)
    EXPECT_EQ(give(many, ids[slot], 4 * kSlot), Window::open);
  EXPECT_EQ(give(many, ids[4], 5 * kSlot - 1), Window::beyond_share);
  EXPECT_EQ(give(many, ids[0], 1), Window::open) << "no further bytes";
  for (std::uint32_t slot = 4; slot < half; ++slot)
    EXPECT_EQ(give(many, ids[slot]), Window::open) << slot;
  EXPECT_EQ(give(many, ids[half]), Window::beyond_share) << "half of the cap";
  EXPECT_EQ(ledger.take_return(many, ids[1]), Left::holds);
  EXPECT_EQ(give(many, ids[half]), Window::open);
  // A link may hold two slots, however large.
  EXPECT_EQ(give(a, ids[0], 1), Window::open);
  EXPECT_EQ(give(a, ids[1], 1), Window::open);
  EXPECT_EQ(give(a, ids[2], 1), Window::beyond_share);
}

TEST_F(LedgerOfHolds, TheOwnerKeepsTwoSlotsOfTheSizeFromAllLinksTogether) {
  constexpr std::uint64_t kLarge = kCap / 5;
  const auto begin_large = [&](std::uint32_t slot) {
    const SlotId id{kFirst + 1, slot, 1};
    ledger.begin(id, kLarge);
    return id;
  };
  std::vector<SlotId> ids;
  for (std::uint32_t slot = 0; slot < 4; ++slot) ids.push_back(begin_large(slot));
  for (const SlotId id : {ids[0], ids[1]}) EXPECT_EQ(give(a, id), Window::open);
  EXPECT_EQ(give(b, ids[2]), Window::open);
  EXPECT_EQ(give(b, ids[3]), Window::beyond_share);
  EXPECT_EQ(give(b, ids[0]), Window::open) << "a has that one anyway";
  EXPECT_TRUE(ledger.end_link(a, Death::proved).empty());
  EXPECT_EQ(give(ledger.add_link("c", 4, Reads::in_place), ids[3]), Window::open);
}

TEST_F(LedgerOfHolds, SegmentsBeginInAnyOrderAndHaveSizesOfTheirOwn) {
  const SlotId second{kFirst + 2, 5, 1};
  const SlotId first{kFirst, 1, 1};
  ledger.begin(second, 2 * kSlot);
  ledger.begin(first, kSlot);
  for (const SlotId id : {second, first}) {
    ASSERT_EQ(give(a, id), Window::open);
    EXPECT_FALSE(ledger.drop_owner(id));
  }
  EXPECT_EQ(ledger.most_held(),
            "most are held by vision: 2 holds of " + std::to_string(3 * kSlot) + " bytes");
  EXPECT_EQ(give(a, SlotId{kFirst + 1, 0, 0}), Window::closed) << "no slot of it was used";
  EXPECT_EQ(ledger.end_link(a, Death::proved), (std::vector<SlotId>{first, second}));
}

TEST_F(LedgerOfHolds, AForgottenSegmentIsKnownToNobody) {
  const SlotId other{kFirst + 7, 0, 5};
  ledger.begin(other, kSlot);
  ASSERT_EQ(give(a, other), Window::open);
  const SlotId gone = begin(0);
  ASSERT_TRUE(ledger.drop_owner(gone));
  ledger.forget(kFirst);
  EXPECT_EQ(give(a, gone), Window::closed);
  EXPECT_EQ(ledger.take_return(a, gone), Left::as_was);
  EXPECT_EQ(ledger.stats().ignored_returns, 1u);
  EXPECT_FALSE(ledger.drop_owner(other)) << "the other segment is as it was";
  EXPECT_EQ(ledger.take_return(a, other), Left::none);
}

TEST_F(LedgerOfHolds, WhatReadersOverSocketsHoldIsCountedOnceForEachSlot) {
  const auto c = ledger.add_link("c", 4, Reads::over_socket);
  const auto d = ledger.add_link("d", 4, Reads::over_socket);
  const SlotId one = begin(0);
  const SlotId two = begin(1);
  ASSERT_EQ(give(a, one), Window::open);
  EXPECT_EQ(ledger.sending_bytes(), 0u) << "a reads in place";
  for (const auto link : {c, c, d}) ASSERT_EQ(give(link, one), Window::open);
  ASSERT_EQ(give(d, two), Window::open);
  EXPECT_EQ(ledger.sending_bytes(), 2 * kSlot);
  EXPECT_EQ(ledger.take_back(d, one), Left::holds);
  EXPECT_EQ(ledger.take_back(c, one), Left::holds);
  EXPECT_EQ(ledger.sending_bytes(), 2 * kSlot) << "c has it still";
  ASSERT_EQ(give(c, one), Window::open);
  EXPECT_TRUE(ledger.end_link(c, Death::proved).empty());
  EXPECT_EQ(ledger.sending_bytes(), kSlot);
  EXPECT_EQ(ledger.take_return(d, two), Left::holds);
  EXPECT_EQ(ledger.sending_bytes(), 0u);
}

TEST_F(LedgerOfHolds, TheReaderThatHoldsMostIsNamed) {
  EXPECT_EQ(ledger.most_held(), "no reader holds any of them");
  const SlotId one = begin(0);
  ASSERT_EQ(give(a, one), Window::open);
  for (std::uint32_t slot = 1; slot < 3; ++slot) ASSERT_EQ(give(b, begin(slot)), Window::open);
  const std::string most =
      "most are held by audio: 2 holds of " + std::to_string(2 * kSlot) + " bytes";
  EXPECT_EQ(ledger.most_held(), most);
  EXPECT_TRUE(ledger.end_link(b, Death::not_proved).empty());
  EXPECT_EQ(ledger.most_held(), most + ", quarantined");
}

TEST_F(LedgerOfHolds, InAForkedChildNothingWaitsForAThreadOfTheParent) {
  const SlotId id = begin(0);
  ASSERT_EQ(give(a, id), Window::open);
  // In some of the children a thread that does not exist there holds the lock.
  std::jthread inside([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) (void)ledger.stats();
  });
  for (int round = 0; round < 50; ++round) {
    const int status = test::run_in_child([&] {
      alarm(static_cast<unsigned>(test::kPatience.count()));  // a hung child is killed
      ledger.retire_link(a);
      return ledger.take_back(a, id) == Left::as_was && !ledger.drop_owner(id) ? 0 : 1;
    });
    ASSERT_TRUE(test::exited_with(status, 0)) << status;
  }
  EXPECT_EQ(ledger.holds_of(a), 1u);
}

// The owner's drop, the returns of two readers and the death of a third happen at once: one of them
// frees the slot, and no other does.
TEST_F(LedgerOfHolds, ManyThreadsFreeEachUseOnce) {
  constexpr std::uint64_t kUses = 3000;
  const std::vector readers{ledger.add_link("reader", 1, Reads::over_socket),
                            ledger.add_link("reader", 1, Reads::over_socket)};
  std::atomic<HoldLedger::LinkNumber> mortal{0};
  std::atomic<std::uint64_t> shown{0};  // the generation that all of them have
  std::atomic<std::uint64_t> frees{0};
  const auto wait_for = [](const std::atomic<std::uint64_t>& count, std::uint64_t value) {
    const auto patience = std::chrono::steady_clock::now() + test::kPatience;
    while (count.load() < value && std::chrono::steady_clock::now() < patience)
      std::this_thread::yield();
  };
  const auto for_each_use = [&](auto end_holds) {
    return std::thread([&, end_holds] {
      for (std::uint64_t generation = 1; generation <= kUses; ++generation) {
        wait_for(shown, generation);
        frees += end_holds(SlotId{kFirst, 0, generation});
      }
    });
  };
  std::vector<std::thread> threads;
  for (const auto reader : readers) {
    threads.push_back(for_each_use([&, reader](SlotId id) -> std::uint64_t {
      const Left left = ledger.take_return(reader, id);
      EXPECT_NE(left, Left::as_was);
      return left == Left::none ? 1 : 0;
    }));
  }
  threads.push_back(for_each_use([&](SlotId) -> std::uint64_t {
    return ledger.end_link(mortal.load(), Death::proved).size();
  }));
  for (std::uint64_t generation = 1; generation <= kUses; ++generation) {
    const SlotId id = begin(0, generation);
    mortal = ledger.add_link("mortal", 1, Reads::in_place);
    for (const auto link : {readers[0], readers[1], mortal.load()})
      EXPECT_EQ(give(link, id), Window::open);
    shown = generation;
    if (ledger.drop_owner(id)) ++frees;
    wait_for(frees, generation);  // then the pool assigns it again
    EXPECT_EQ(frees.load(), generation);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.stats().holds, 0u);
  EXPECT_EQ(ledger.stats().ignored_returns, 0u);
  EXPECT_EQ(ledger.sending_bytes(), 0u);
}

// A plain model -----------------------------------------------------------------------------------

struct Model {
  struct Use {
    bool owned = true;
    std::map<std::size_t, std::uint32_t> holds;  // by index of the link
    [[nodiscard]] bool is_free() const { return !owned && holds.empty(); }
    bool end_one(std::size_t link) {
      const auto held = holds.find(link);
      if (held == holds.end()) return false;
      if (--held->second == 0) holds.erase(held);
      return true;
    }
  };
  std::map<std::uint32_t, Use> uses;  // by slot; the slots that are not free
  std::map<std::uint32_t, std::uint64_t> generations;
};

// Each call frees the same slots as in the model.
TEST(LedgerOfHoldsModel, RandomCallsFreeWhatTheModelFrees) {
  const auto seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&random](std::uint64_t n) {
    return std::uniform_int_distribution<std::uint64_t>(0, n - 1)(random);
  };
  constexpr std::uint32_t kSlots = 6;
  HoldLedger ledger(1000 * kSlot);
  Model model;
  std::vector<HoldLedger::LinkNumber> links;
  for (int step = 0; step < 20'000; ++step) {
    while (links.size() < 4) links.push_back(ledger.add_link("link", 1000, Reads::in_place));
    const auto slot = static_cast<std::uint32_t>(below(kSlots));
    const std::size_t link = below(links.size());
    auto use = model.uses.find(slot);
    if (use == model.uses.end()) {
      ledger.begin({kFirst, slot, ++model.generations[slot]}, kSlot);
      use = model.uses.emplace(slot, Model::Use()).first;
    }
    const SlotId id{kFirst, slot, model.generations[slot]};
    switch (below(8)) {
      case 0:
      case 1:
      case 2:
        if (!use->second.owned) break;
        ASSERT_EQ(ledger.give(links[link], id, kWhole), Window::open);
        ++use->second.holds[link];
        break;
      case 3: {
        use->second.owned = false;
        ASSERT_EQ(ledger.drop_owner(id), use->second.is_free());
        break;
      }
      case 4:
      case 5:
      case 6: {
        const bool known = use->second.end_one(link);
        const Left expected = !known                  ? Left::as_was
                              : use->second.is_free() ? Left::none
                                                      : Left::holds;
        ASSERT_EQ(
            below(2) == 0 ? ledger.take_return(links[link], id) : ledger.take_back(links[link], id),
            expected);
        break;
      }
      default: {
        if (below(10) != 0) break;
        std::vector<SlotId> freed;
        for (auto& [other, its] : model.uses)
          if (its.holds.erase(link) != 0 && its.is_free())
            freed.push_back({kFirst, other, model.generations[other]});
        ASSERT_EQ(ledger.end_link(links[link], Death::proved), freed);
        links[link] = ledger.add_link("link", 1000, Reads::in_place);
        break;
      }
    }
    std::erase_if(model.uses, [](const auto& entry) { return entry.second.is_free(); });
    std::uint64_t holds = 0;
    for (const auto& [other, its] : model.uses)
      for (const auto& [reader, count] : its.holds) holds += count;
    ASSERT_EQ(ledger.stats().holds, holds);
  }
}

}  // namespace
}  // namespace tendon::v0::detail
