// SPDX-License-Identifier: Apache-2.0
// What a publisher counts as lost and what a subscriber finds missing: the same, exactly.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <vector>

#include "fabric/cursor.hpp"
#include "fabric/gap_finder.hpp"
#include "fabric/sample_header.hpp"
#include "support/expect.hpp"

namespace tendon::test {
namespace {

using detail::Cursor;
using detail::GapFinder;
using detail::KeptSample;
using detail::SampleHeader;
using detail::SampleHistory;
using Missing = GapFinder::Missing;
using Found = GapFinder::Found;

void publish(SampleHistory& history, int count) {
  for (int i = 0; i < count; ++i) history.push(std::make_shared<KeptSample>());
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
  cursor.shown();
  cursor.shown();
  EXPECT_TRUE(cursor.is_at_end(history));
}

TEST(CursorOf, OneThatIsBehindCountsWhatItLost) {
  SampleHistory history(2);
  publish(history, 1);
  Cursor cursor(history);
  cursor.shown();
  publish(history, 6);  // 2 to 7; 6 and 7 are kept
  cursor.catch_up(history);
  EXPECT_EQ(cursor.next(), 6u);
  EXPECT_EQ(cursor.tag(), 4u);
  publish(history, 1);
  cursor.catch_up(history);
  EXPECT_EQ(cursor.tag(), 5u) << "until it is shown one, it loses more";
  cursor.shown();
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
  EXPECT_EQ(cursor.tag(), 0u);
  publish(history, 4);  // 5 to 8 are kept: 3 and 4 were due to go
  cursor.catch_up(history);
  EXPECT_EQ(cursor.next(), 5u);
  EXPECT_EQ(cursor.tag(), 2u);
}

TEST(CursorOf, OneThatResumesBelievesNoSequenceBeyondTheLast) {
  SampleHistory history(4);
  publish(history, 3);
  EXPECT_EQ(Cursor(history, 2).next(), 3u);
  EXPECT_EQ(Cursor(history, 3).next(), 4u);
  EXPECT_EQ(Cursor(history, ~std::uint64_t{0}).next(), 4u);
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
  EXPECT_EQ(gaps.on_sample(9, 1).missing, (Missing{6, 8, GapReason::history}));
  EXPECT_EQ(gaps.on_sample(10, 0).missing, std::nullopt);
}

TEST(Gaps, ASequenceThatGoesBackIsARepetition) {
  GapFinder gaps;
  EXPECT_EQ(gaps.on_sample(4, 0).order, GapFinder::Order::follows);
  EXPECT_EQ(gaps.on_sample(4, 0).order, GapFinder::Order::repeated);
  EXPECT_EQ(gaps.on_sample(3, 9).order, GapFinder::Order::repeated);
  EXPECT_EQ(gaps.last(), 4u);
}

TEST(Gaps, WhatPassedWithoutALinkIsSaid) {
  GapFinder gaps(7);
  EXPECT_EQ(gaps.on_sample(8, 0), Found{});
  GapFinder later(7);
  EXPECT_EQ(later.on_sample(11, 3).missing, (Missing{8, 10, GapReason::reconnect}));
  EXPECT_EQ(later.on_sample(14, 2).missing, (Missing{12, 13, GapReason::overflow}))
      << "the first sample ends the resumption";
}

TEST(Gaps, TheEndShowsWhatNoSampleFollows) {
  GapFinder gaps;
  EXPECT_EQ(gaps.on_end(9), std::nullopt) << "it has seen nothing of this publisher";
  EXPECT_EQ(gaps.on_sample(3, 0), Found{});
  EXPECT_EQ(gaps.on_end(3), std::nullopt);
  EXPECT_EQ(gaps.on_end(0), std::nullopt);
  EXPECT_EQ(gaps.on_end(6), (Missing{4, 6, GapReason::overflow}));
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

// A publisher and its subscribers in random order: each subscriber accounts for every sample
// between the first that it saw and the end, once, and in order.
class Account {
 public:
  explicit Account(const SampleHistory& history) : cursor_(history) {}

  void show_one(const SampleHistory& history) {
    cursor_.catch_up(history);
    if (cursor_.is_at_end(history)) return;
    under_way_.emplace_back(cursor_.next(), cursor_.tag());
    cursor_.shown();
  }
  void take_one() {
    if (under_way_.empty()) return;
    const auto [sequence, tag] = under_way_.front();
    under_way_.pop_front();
    const Found found = gaps_.on_sample(sequence, tag);
    ASSERT_EQ(found.order, GapFinder::Order::follows);
    note(found.missing);
    if (found.missing && !resumed_ && !trimmed_) {
      EXPECT_EQ(found.missing->reason, GapReason::overflow);
    }
    if (found.missing && resumed_) {
      EXPECT_EQ(found.missing->reason, GapReason::reconnect);
    }
    resumed_ = false;
    seen_.push_back(sequence);
  }
  // The link is lost with what is under way; the subscriber comes back.
  void reconnect(const SampleHistory& history) {
    under_way_.clear();
    resumed_ = gaps_.last() != 0;
    gaps_ = GapFinder(gaps_.last());
    cursor_ = resumed_ ? Cursor(history, gaps_.last()) : Cursor(history);
  }
  void note_trimmed() { trimmed_ = true; }
  void end(const SampleHistory& history) {
    while (!under_way_.empty()) take_one();
    note(gaps_.on_end(history.last()));
    if (seen_.empty()) return;
    std::vector<std::uint64_t> all = seen_;
    all.insert(all.end(), missing_.begin(), missing_.end());
    std::ranges::sort(all);
    std::uint64_t next = seen_.front();
    for (const std::uint64_t each : all) ASSERT_EQ(each, next++);
    EXPECT_EQ(next, history.last() + 1);
    EXPECT_TRUE(std::ranges::is_sorted(seen_));
  }

 private:
  void note(const std::optional<Missing>& missing) {
    if (!missing) return;
    for (std::uint64_t each = missing->first; each <= missing->last; ++each)
      missing_.push_back(each);
  }

  Cursor cursor_;
  GapFinder gaps_;
  std::deque<std::pair<std::uint64_t, std::uint32_t>> under_way_;
  std::vector<std::uint64_t> seen_;
  std::vector<std::uint64_t> missing_;
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
      if (what < 7) publish(history, 1);
      if (what == 7 && accounts.size() < 4) accounts.push_back(std::make_unique<Account>(history));
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
