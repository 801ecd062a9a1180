// SPDX-License-Identifier: Apache-2.0
// A publisher counts exactly those samples as lost that a subscriber finds missing.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <vector>

#include "fabric/samples/cursor.hpp"
#include "fabric/samples/gap_finder.hpp"
#include "fabric/samples/sample_header.hpp"
#include "support/expect.hpp"

namespace tendon::test {
namespace {

using detail::Cursor;
using detail::GapFinder;
using detail::KeptSample;
using detail::Pace;
using detail::SampleHeader;
using detail::SampleHistory;
using Missing = GapFinder::Missing;
using Found = GapFinder::Found;

// The sample of sequence n has the stamp n * kStep.
constexpr std::uint64_t kStep = 1000;

void publish(SampleHistory& history, int count) {
  for (int i = 0; i < count; ++i) {
    auto sample = std::make_shared<KeptSample>();
    sample->header.stamp = (history.last() + 1) * kStep;
    history.push(std::move(sample));
  }
}

constexpr std::uint32_t short_of_memory(std::uint32_t lost) {
  return lost | Cursor::kShortOfMemory;
}

TEST(History, KeepsTheLastSamples) {
  SampleHistory history(3);
  EXPECT_EQ(history.first(), 1u);
  EXPECT_EQ(history.last(), 0u);
  EXPECT_EQ(history.find(1), nullptr);
  publish(history, 2);
  EXPECT_EQ(history.first(), 1u);
  publish(history, 3);
  EXPECT_EQ(history.first(), 3u);
  EXPECT_EQ(history.last(), 5u);
  EXPECT_EQ(history.find(2), nullptr);
  EXPECT_NE(history.find(3), nullptr);
  EXPECT_NE(history.find(5), nullptr);
  EXPECT_EQ(history.find(6), nullptr);
}

TEST(History, GivesUpTheOldestForWantOfMemory) {
  SampleHistory history(3);
  publish(history, 3);
  EXPECT_TRUE(history.trim());
  EXPECT_EQ(history.first(), 2u);
  EXPECT_EQ(history.due_first(), 1u);
  EXPECT_TRUE(history.trim());
  EXPECT_TRUE(history.trim());
  EXPECT_FALSE(history.trim());
  EXPECT_EQ(history.first(), 4u);
  publish(history, 1);
  EXPECT_EQ(history.first(), 4u);
  EXPECT_EQ(history.last(), 4u);
}

TEST(CursorOf, ALateOneBeginsAtTheOldestSample) {
  SampleHistory history(2);
  EXPECT_EQ(Cursor(history).next(), 1u);
  publish(history, 5);
  Cursor cursor(history);
  EXPECT_EQ(cursor.next(), 4u);
  EXPECT_EQ(cursor.tag(), 0u) << "what was before it is no loss";
  cursor.shown(0);
  cursor.shown(0);
  EXPECT_TRUE(cursor.is_at_end(history));
}

TEST(CursorOf, OneThatIsBehindCountsWhatItLost) {
  SampleHistory history(2);
  publish(history, 1);
  Cursor cursor(history);
  cursor.shown(0);
  publish(history, 6);  // 2 to 7; 6 and 7 are kept
  cursor.catch_up(history);
  EXPECT_EQ(cursor.next(), 6u);
  EXPECT_EQ(cursor.tag(), 4u);
  publish(history, 1);
  cursor.catch_up(history);
  EXPECT_EQ(cursor.tag(), 5u) << "until it is shown one, it loses more";
  cursor.shown(0);
  EXPECT_EQ(cursor.tag(), 0u);
}

TEST(CursorOf, WhatIsTrimmedIsNoOverflow) {
  SampleHistory history(4);
  publish(history, 4);
  Cursor cursor(history);
  EXPECT_TRUE(history.trim());
  EXPECT_TRUE(history.trim());
  cursor.catch_up(history);
  EXPECT_EQ(cursor.next(), 3u);
  EXPECT_EQ(cursor.tag(), short_of_memory(2));
  publish(history, 4);  // 5 to 8 are kept: 3 and 4 would have left anyway
  cursor.catch_up(history);
  EXPECT_EQ(cursor.next(), 5u);
  EXPECT_EQ(cursor.tag(), short_of_memory(4));
}

TEST(CursorOf, OneThatResumesBelievesNoSequenceBeyondTheLast) {
  SampleHistory history(4);
  publish(history, 3);
  EXPECT_EQ(Cursor(history, 2).next(), 3u);
  EXPECT_EQ(Cursor(history, 3).next(), 4u);
  EXPECT_EQ(Cursor(history, ~std::uint64_t{0}).next(), 4u);
}

TEST(CursorOf, OneThatIsBehindSaysAtMostWhatTheTagHolds) {
  SampleHistory history(1);
  publish(history, 1);
  Cursor cursor(history);
  cursor.pass_over();
  EXPECT_EQ(cursor.tag(), 1u);
  publish(history, 1);
  EXPECT_EQ(cursor.lost_until(2), 2u) << "one passed over, one not shown yet";
}

// Rates

TEST(PaceOf, ASubscriberIsItsRateOnTheAverage) {
  Pace pace(3 * kStep);
  int shown = 0;
  for (std::uint64_t stamp = kStep; stamp <= 3000 * kStep; stamp += kStep) {
    if (!pace.is_due(stamp)) continue;
    pace.took(stamp);
    ++shown;
  }
  EXPECT_NEAR(shown, 1000, 1);
  // A rate that does not divide the publisher's is kept on average too.
  Pace odd(2500);
  shown = 0;
  for (std::uint64_t stamp = kStep; stamp <= 5000 * kStep; stamp += kStep) {
    if (!odd.is_due(stamp)) continue;
    odd.took(stamp);
    ++shown;
  }
  EXPECT_NEAR(shown, 2000, 1);
}

TEST(PaceOf, APublisherOfJustThatRateIsNotHalvedByItsJitter) {
  Pace pace(kStep);
  std::mt19937 random(1);
  for (std::uint64_t n = 1; n <= 1000; ++n) {
    const std::uint64_t stamp = 10 * kStep + n * kStep + random() % (kStep / 2);
    EXPECT_TRUE(pace.is_due(stamp)) << n;
    pace.took(stamp);
  }
}

TEST(PaceOf, WhatAPeerAsksForOverflowsNothing) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  Pace slow(kMost);
  EXPECT_TRUE(slow.is_due(0));
  slow.took(kMost);
  EXPECT_FALSE(slow.is_due(kStep));
  slow.took(kMost);
  EXPECT_FALSE(slow.is_due(kStep));
  EXPECT_FALSE(Pace(kStep, kMost).is_due(kStep)) << "it has said so itself";
  EXPECT_TRUE(Pace(0, kMost).is_due(kStep));
}

TEST(CursorOf, ARateLeavesSamplesOutAndLosesNone) {
  SampleHistory history(2);
  publish(history, 1);
  Cursor cursor(history, Pace(4 * kStep));
  EXPECT_EQ(cursor.catch_up(history), 0u);
  EXPECT_EQ(cursor.next(), 1u);
  cursor.shown(kStep);
  publish(history, 1);
  EXPECT_EQ(cursor.catch_up(history), 1u);
  EXPECT_TRUE(cursor.is_at_end(history));
  EXPECT_TRUE(cursor.has_shown(1));
  EXPECT_FALSE(cursor.has_shown(2));
  publish(history, 1);
  EXPECT_EQ(cursor.catch_up(history), 0u) << "half of the period has passed: it is early";
  EXPECT_EQ(cursor.tag(), 0u);
  cursor.shown(3 * kStep);
  publish(history, 4);  // 4 to 7: the trimmed ones, 4 and 5, were not due, as 6 shows
  EXPECT_EQ(cursor.next(), 4u);
  EXPECT_EQ(cursor.catch_up(history), 3u);
  EXPECT_EQ(cursor.next(), 7u);
  EXPECT_EQ(cursor.tag(), 0u);
  EXPECT_EQ(cursor.lost_until(7), 1u);
}

TEST(CursorOf, WhatWasDueIsLostWithAllThatCameBehindIt) {
  SampleHistory history(2);
  publish(history, 1);
  Cursor cursor(history, Pace(4 * kStep));
  cursor.shown(kStep);
  publish(history, 2);
  EXPECT_EQ(cursor.catch_up(history), 1u);  // 2; 3 is due, and its window is closed
  publish(history, 6);                      // 8 and 9 are kept
  EXPECT_EQ(cursor.catch_up(history), 0u);
  EXPECT_EQ(cursor.next(), 8u);
  EXPECT_EQ(cursor.tag(), 5u) << "3 to 7";
  GapFinder gaps(GapFinder::Rate::thinned);
  EXPECT_EQ(gaps.on_sample(1, 0), Found{});
  const Found found = gaps.on_sample(8, cursor.tag());
  EXPECT_EQ(found.thinned, 1u);
  EXPECT_EQ(found.missing, (Missing{3, 7, GapReason::overflow}));
}

TEST(CursorOf, OneThatResumesGoesOnAtItsRate) {
  SampleHistory history(3);
  publish(history, 9);
  Cursor cursor(history, 6, Pace(8 * kStep, 6 * kStep));
  EXPECT_EQ(cursor.catch_up(history), 3u);
  EXPECT_TRUE(cursor.is_at_end(history));
  Cursor late(history, 4, Pace(8 * kStep, 4 * kStep));  // 5 and 6 have left; 7 was not due, 8 is
  EXPECT_EQ(late.catch_up(history), 3u);
  EXPECT_EQ(late.tag(), 0u);
  Cursor later(history, 1, Pace(4 * kStep, kStep));
  EXPECT_EQ(later.catch_up(history), 0u);
  EXPECT_EQ(later.tag(), 5u) << "nobody knows which of 2 to 6 were due";
}

TEST(Gaps, NothingIsMissingBeforeTheFirstSample) {
  GapFinder gaps;
  EXPECT_EQ(gaps.on_sample(17, 0), Found{});
  EXPECT_EQ(gaps.on_sample(18, 0), Found{});
  EXPECT_EQ(gaps.last(), 18u);
}

TEST(Gaps, TheTagSaysWhoseFaultItWas) {
  GapFinder gaps;
  EXPECT_EQ(gaps.on_sample(1, 0), Found{});
  EXPECT_EQ(gaps.on_sample(5, 3).missing, (Missing{2, 4, GapReason::overflow}));
  EXPECT_EQ(gaps.on_sample(9, short_of_memory(3)).missing, (Missing{6, 8, GapReason::history}));
  EXPECT_EQ(gaps.on_sample(10, 0).missing, std::nullopt);
  EXPECT_EQ(gaps.on_sample(14, 1).missing, (Missing{11, 13, GapReason::history}))
      << "it asked for no rate: what is not counted was given up";
  EXPECT_EQ(gaps.on_sample(16, 1000).missing, (Missing{15, 15, GapReason::overflow}));
}

TEST(Gaps, WhatTheRateLeavesOutIsNotMissing) {
  GapFinder gaps(GapFinder::Rate::thinned);
  EXPECT_EQ(gaps.on_sample(3, 2), Found{});
  EXPECT_EQ(gaps.on_sample(9, 0), (Found{.thinned = 5}));
  EXPECT_EQ(gaps.on_sample(15, short_of_memory(2)),
            (Found{.missing = Missing{13, 14, GapReason::history}, .thinned = 3}));
  EXPECT_EQ(gaps.on_sample(17, Cursor::kMostInTag),
            (Found{.missing = Missing{16, 16, GapReason::overflow}}));
  EXPECT_EQ(gaps.on_end(20, 1),
            (Found{.missing = Missing{20, 20, GapReason::overflow}, .thinned = 2}));
  EXPECT_EQ(gaps.on_end(20, 1), Found{});
  GapFinder resumed(7, GapFinder::Rate::thinned);
  EXPECT_EQ(resumed.on_sample(12, short_of_memory(1)),
            (Found{.missing = Missing{11, 11, GapReason::reconnect}, .thinned = 3}));
}

TEST(Gaps, ASequenceThatGoesBackIsARepetition) {
  GapFinder gaps;
  EXPECT_EQ(gaps.on_sample(4, 0).order, GapFinder::Order::follows);
  EXPECT_EQ(gaps.on_sample(4, 0).order, GapFinder::Order::repeated);
  EXPECT_EQ(gaps.on_sample(3, 9).order, GapFinder::Order::repeated);
  EXPECT_EQ(gaps.last(), 4u);
}

TEST(Gaps, WhatPassedWithoutALinkIsSaid) {
  GapFinder gaps(7, GapFinder::Rate::all);
  EXPECT_EQ(gaps.on_sample(8, 0), Found{});
  GapFinder later(7, GapFinder::Rate::all);
  EXPECT_EQ(later.on_sample(11, 3).missing, (Missing{8, 10, GapReason::reconnect}));
  EXPECT_EQ(later.on_sample(14, 2).missing, (Missing{12, 13, GapReason::overflow}))
      << "the first sample ends the resumption";
}

TEST(Gaps, TheEndShowsWhatNoSampleFollows) {
  GapFinder gaps;
  EXPECT_EQ(gaps.on_end(9, 9), Found{}) << "it has seen nothing of this publisher";
  EXPECT_EQ(gaps.on_sample(3, 0), Found{});
  EXPECT_EQ(gaps.on_end(3, 0), Found{});
  EXPECT_EQ(gaps.on_end(0, 0), Found{});
  EXPECT_EQ(gaps.on_end(6, 3).missing, (Missing{4, 6, GapReason::overflow}));
}

TEST(Gaps, AreShownInWords) {
  std::ostringstream text;
  text << Gap{"vi\nsion", 5, 18, 40, GapReason::reconnect};
  EXPECT_EQ(text.str(), "samples 18 to 40 of vi sion are missing (reconnect)");
  EXPECT_EQ((Gap{"x", 1, 18, 40, GapReason::overflow}).count(), 23u);
}

TEST(SampleHeaders, AreReadFromExactlyTheirBytes) {
  const SampleHeader header{.sequence = 3, .stamp = 4, .incarnation = 5};
  std::vector<std::byte> bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  EXPECT_EQ(detail::read_sample_header(bytes).value(), header);
  EXPECT_TRUE(fails_with(detail::read_sample_header(Bytes(bytes).first(39)),
                         ErrorCode::protocol_violation, "39"));
  bytes.push_back({});
  EXPECT_TRUE(fails_with(detail::read_sample_header(bytes), ErrorCode::protocol_violation, "41"));
  const std::vector<std::byte> zero(sizeof header);
  EXPECT_TRUE(fails_with(detail::read_sample_header(zero), ErrorCode::protocol_violation, "0"));
}

// A publisher and its subscribers in random order. Each subscriber accounts for every sample
// between the first that it saw and the end, once, and in order.
class Account {
 public:
  /// `period_ns` 0: the subscriber has asked for no rate.
  Account(const SampleHistory& history, std::uint64_t period_ns)
      : period_(period_ns), cursor_(history, Pace(period_ns)), gaps_(rate()) {}

  // Acts as a publisher does for each subscription whenever something moves.
  void look(const SampleHistory& history) { thinned_there_ += cursor_.catch_up(history); }
  void show_one(const SampleHistory& history) {
    look(history);
    if (cursor_.is_at_end(history)) return;
    under_way_.emplace_back(cursor_.next(), cursor_.tag());
    cursor_.shown(cursor_.next() * kStep);
    look(history);
  }
  void take_one() {
    if (under_way_.empty()) return;
    const auto [sequence, tag] = under_way_.front();
    under_way_.pop_front();
    const Found found = gaps_.on_sample(sequence, tag);
    ASSERT_EQ(found.order, GapFinder::Order::follows);
    note(found);
    if (found.missing && !resumed_ && !trimmed_) {
      EXPECT_EQ(found.missing->reason, GapReason::overflow);
    }
    if (found.missing && resumed_) {
      EXPECT_EQ(found.missing->reason, GapReason::reconnect);
    }
    resumed_ = false;
    accounted_ = sequence;
    seen_.push_back(sequence);
  }
  // The link is lost with the samples under way; the subscriber returns.
  void reconnect(const SampleHistory& history) {
    under_way_.clear();
    resumed_ = gaps_.last() != 0;
    gaps_ = GapFinder(gaps_.last(), rate());
    cursor_ = resumed_ ? Cursor(history, gaps_.last(), Pace(period_, gaps_.last() * kStep))
                       : Cursor(history, Pace(period_));
    reconnected_ = true;
  }
  void note_trimmed() { trimmed_ = true; }
  void end(const SampleHistory& history) {
    while (!under_way_.empty()) take_one();
    note(gaps_.on_end(history.last(), cursor_.lost_until(history.last())));
    if (seen_.empty()) return;
    if (period_ == 0) {
      EXPECT_EQ(thinned_.size(), 0u);
    }
    if (!reconnected_) {
      EXPECT_EQ(thinned_.size(), thinned_there_) << "both sides count the same";
    }
    std::vector<std::uint64_t> all = seen_;
    all.insert(all.end(), missing_.begin(), missing_.end());
    all.insert(all.end(), thinned_.begin(), thinned_.end());
    std::ranges::sort(all);
    std::uint64_t next = seen_.front();
    for (const std::uint64_t each : all) ASSERT_EQ(each, next++);
    EXPECT_EQ(next, history.last() + 1);
    EXPECT_TRUE(std::ranges::is_sorted(seen_));
  }

 private:
  [[nodiscard]] GapFinder::Rate rate() const {
    return period_ == 0 ? GapFinder::Rate::all : GapFinder::Rate::thinned;
  }
  // Notes what was found before the next sample to be noted, or before the end.
  void note(const Found& found) {
    const std::uint64_t before = accounted_;
    for (std::uint64_t n = 1; n <= found.thinned; ++n) thinned_.push_back(before + n);
    if (!found.missing) return;
    EXPECT_EQ(found.missing->first, before + found.thinned + 1);
    for (std::uint64_t each = found.missing->first; each <= found.missing->last; ++each)
      missing_.push_back(each);
  }

  const std::uint64_t period_;
  Cursor cursor_;
  GapFinder gaps_;
  std::uint64_t accounted_ = 0;  // the last sample that was seen
  std::uint64_t thinned_there_ = 0;
  bool reconnected_ = false;
  std::deque<std::pair<std::uint64_t, std::uint32_t>> under_way_;
  std::vector<std::uint64_t> seen_;
  std::vector<std::uint64_t> missing_;
  std::vector<std::uint64_t> thinned_;
  bool resumed_ = false;
  bool trimmed_ = false;
};

TEST(Gaps, AccountForEverySampleInAnyOrderOfEvents) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto draw = [&](std::uint32_t most) { return random() % most; };
    SampleHistory history(1 + draw(6));
    std::vector<std::unique_ptr<Account>> accounts;
    const bool trims = draw(2) == 0;
    for (int step = 0; step < 400; ++step) {
      const std::uint32_t what = draw(20);
      if (what < 7) {
        publish(history, 1);
        for (const auto& account : accounts) account->look(history);
      }
      if (what == 7 && accounts.size() < 4) {
        const std::uint64_t period_ns = draw(2) == 0 ? 0 : draw(5000);
        accounts.push_back(std::make_unique<Account>(history, period_ns));
      }
      if (what == 8 && trims) {
        (void)history.trim();
        for (const auto& account : accounts) account->note_trimmed();
      }
      if (accounts.empty()) continue;
      Account& account = *accounts[draw(static_cast<std::uint32_t>(accounts.size()))];
      if (what >= 9 && what < 14) account.show_one(history);
      if (what >= 14 && what < 19) account.take_one();
      if (what == 19 && draw(4) == 0) account.reconnect(history);
      if (HasFatalFailure()) return;
    }
    for (const auto& account : accounts) account->end(history);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tendon::test
