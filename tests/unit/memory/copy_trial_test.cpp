// SPDX-License-Identifier: Apache-2.0
#include "memory/copy_trial.hpp"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace tendon::v0::detail {
namespace {

using Rounds = CopyFigures::Rounds;

CopyFigures figures(const Rounds& cached, const Rounds& streaming, const Rounds& prefetched) {
  CopyFigures all;
  all.of(CopyHint::cached) = cached;
  all.of(CopyHint::streaming) = streaming;
  all.of(CopyHint::prefetched) = prefetched;
  return all;
}
/// Five equal rounds.
CopyFigures even(double cached, double streaming, double prefetched) {
  return figures({cached, cached, cached, cached, cached},
                 {streaming, streaming, streaming, streaming, streaming},
                 {prefetched, prefetched, prefetched, prefetched, prefetched});
}

// A Xeon with AVX-512 [ns for a byte]: 11, 16 and 5.8 GB/s.
TEST(ChooseCopy, StreamsWithoutPrefetchWherePrefetchHalvesTheRate) {
  EXPECT_EQ(choose_copy(even(0.091, 0.0625, 0.172)), CopyHint::streaming);
}
TEST(ChooseCopy, PrefetchesWhereThatIsFaster) {
  EXPECT_EQ(choose_copy(even(0.12, 0.08, 0.06)), CopyHint::prefetched);
}
TEST(ChooseCopy, PrefetchMustBeClearlyFasterThanStreaming) {
  EXPECT_EQ(choose_copy(even(0.12, 0.0615, 0.06)), CopyHint::streaming);
}
TEST(ChooseCopy, TakesMemcpyWhereItIsFaster) {
  EXPECT_EQ(choose_copy(even(0.025, 0.04, 0.041)), CopyHint::cached);
}
TEST(ChooseCopy, TakesMemcpyWhereStreamingIsHardlyFaster) {
  EXPECT_EQ(choose_copy(even(0.1, 0.095, 0.096)), CopyHint::cached);
}
TEST(ChooseCopy, TakesMemcpyWhereAllAreAlike) {
  EXPECT_EQ(choose_copy(even(0.1, 0.1, 0.1)), CopyHint::cached);
}
TEST(ChooseCopy, OneDisturbedRoundDoesNotMatter) {
  const Rounds cached = {0.1, 0.1, 0.1, 0.1, 0.1};
  EXPECT_EQ(choose_copy(figures(cached, {0.06, 0.06, 0.9, 0.06, 0.06}, cached)),
            CopyHint::streaming);
  EXPECT_EQ(choose_copy(figures({0.05, 0.05, 0.9, 0.05, 0.05}, cached, cached)), CopyHint::cached);
}
// The machine became slower over time for all methods: only the ratio inside each round counts.
TEST(ChooseCopy, ComparesInsideRounds) {
  EXPECT_EQ(choose_copy(figures({0.1, 0.2, 0.3, 0.4, 0.5}, {0.06, 0.12, 0.18, 0.24, 0.3},
                                {0.1, 0.2, 0.3, 0.4, 0.5})),
            CopyHint::streaming);
}
TEST(ChooseCopy, NoiseIsLeftToMemcpy) {
  // Streaming is faster by half in three rounds, and slower in two.
  EXPECT_EQ(choose_copy(figures({0.1, 0.1, 0.1, 0.1, 0.1}, {0.05, 0.05, 0.05, 0.2, 0.2},
                                {0.2, 0.05, 0.2, 0.05, 0.05})),
            CopyHint::cached);
}

constexpr std::uint64_t kSettling = std::uint64_t{8} << 20;
constexpr std::uint64_t kTurn = kSettling + CopyTrial::kTurnSamples * CopyTrial::kSampleBytes;

/// Runs a trial with parts of `part_bytes`, where each method takes its ns for a KiB; returns the
/// bytes that each method copied.
std::map<CopyHint, std::uint64_t> run(CopyTrial& trial, std::uint64_t part_bytes,
                                      std::map<CopyHint, std::uint64_t> ns_per_kib) {
  std::map<CopyHint, std::uint64_t> bytes;
  while (!trial.is_over()) {
    const CopyHint way = trial.way();
    bytes[way] += part_bytes;
    trial.took(part_bytes, part_bytes / 1024 * ns_per_kib[way]);
  }
  return bytes;
}

TEST(CopyTrial, GivesEachWayItsTurns) {
  for (const std::uint64_t part_bytes : {4096u, 65536u, 1u << 20}) {
    CopyTrial trial(kSettling);
    const auto bytes =
        run(trial, part_bytes,
            {{CopyHint::cached, 100}, {CopyHint::streaming, 60}, {CopyHint::prefetched, 200}});
    for (const CopyHint way : kCopyHints) EXPECT_EQ(bytes.at(way), kCopyRounds * kTurn);
    EXPECT_DOUBLE_EQ(trial.figures().ns_per_byte(CopyHint::cached), 100.0 / 1024);
    EXPECT_DOUBLE_EQ(trial.figures().ns_per_byte(CopyHint::streaming), 60.0 / 1024);
    EXPECT_DOUBLE_EQ(trial.figures().ns_per_byte(CopyHint::prefetched), 200.0 / 1024);
  }
}

TEST(CopyTrial, TurnsAreInterleaved) {
  CopyTrial trial(kSettling);
  std::vector<CopyHint> turns;
  while (!trial.is_over()) {
    turns.push_back(trial.way());
    for (std::uint64_t done = 0; done < kTurn; done += 1 << 20) trial.took(1 << 20, 1000);
  }
  ASSERT_EQ(turns.size(), kCopyRounds * kCopyHints.size());
  for (std::size_t i = 0; i < turns.size(); ++i)
    EXPECT_EQ(turns[i], kCopyHints[i % kCopyHints.size()]) << i;
}

// A turn begins with the write-back of cache lines that the previous method left.
TEST(CopyTrial, TheBeginningOfATurnDoesNotCount) {
  CopyTrial trial(kSettling);
  std::uint64_t in_turn = 0;
  while (!trial.is_over()) {
    trial.took(1 << 20, in_turn < kSettling ? 1'000'000'000 : 1 << 20);
    in_turn = (in_turn + (1 << 20)) % kTurn;
  }
  for (const CopyHint way : kCopyHints)
    for (const double ns : trial.figures().of(way)) EXPECT_DOUBLE_EQ(ns, 1);
}

TEST(CopyTrial, ALoneSlowPartDoesNotCount) {
  CopyTrial trial(kSettling);
  std::uint64_t parts = 0;
  while (!trial.is_over()) trial.took(1 << 20, ++parts % 4 == 0 ? 50 << 20 : 1 << 20);
  for (const CopyHint way : kCopyHints)
    for (const double ns : trial.figures().of(way)) EXPECT_DOUBLE_EQ(ns, 1);
}

// Each part is the first touch of its pages, so no time is valid. Only memcpy is used for longer
// than a part.
TEST(CopyTrial, DisturbedPartsGoByMemcpyAndNeverEndIt) {
  CopyTrial trial(0);
  while (trial.way() == CopyHint::cached) trial.took(1 << 20, 1000);
  for (int i = 0; i < 1000; ++i) {
    trial.was_disturbed();
    ASSERT_EQ(trial.way(), CopyHint::cached);
    ASSERT_FALSE(trial.is_over());
  }
  trial.took(1 << 20, 1'000'000'000);  // undisturbed, but by memcpy: it says nothing about the turn
  EXPECT_EQ(trial.way(), CopyHint::streaming);
  while (!trial.is_over()) trial.took(1 << 20, 1 << 20);
  for (const double ns : trial.figures().of(CopyHint::streaming)) EXPECT_DOUBLE_EQ(ns, 1);
}

}  // namespace
}  // namespace tendon::v0::detail
