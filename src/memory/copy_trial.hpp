// SPDX-License-Identifier: Apache-2.0
// Finds the fastest way to copy: the trials, and the conclusions from their figures.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "memory/copy.hpp"

namespace tendon::v0::detail {

/// The number of trials of each way, in turns.
inline constexpr std::size_t kCopyRounds = 5;

/// The time of each way in each round [ns for a byte].
class CopyFigures {
 public:
  using Rounds = std::array<double, kCopyRounds>;
  [[nodiscard]] constexpr const Rounds& of(CopyHint way) const {
    return rounds_[static_cast<std::size_t>(way)];
  }
  [[nodiscard]] constexpr Rounds& of(CopyHint way) {
    return rounds_[static_cast<std::size_t>(way)];
  }
  /// The median of the rounds.
  [[nodiscard]] double ns_per_byte(CopyHint way) const;

 private:
  std::array<Rounds, kCopyHints.size()> rounds_{};
};

/// Chooses memcpy, unless another way was faster in all rounds but one, and by a tenth in most. A
/// way that a busy machine has made look fast once or twice is therefore not chosen.
[[nodiscard]] CopyHint choose_copy(const CopyFigures& figures);

/// The trial of one range of sizes, made with copies that are needed anyway. Each turn uses one way
/// for a while, and the time of every part is reported here. It thus measures the memory that is
/// really used, and costs no memory and no time except that of the slower ways.
///
/// Only the last kTurnSamples of each turn count. Before them, lines that the former way left in
/// the cache are written back, and the destination settles where this way leaves it.
///
/// Threads: one at a time.
/// Blocks:  never.
/// Cost:    a few additions for each part.
class CopyTrial {
 public:
  /// `settling_bytes` of each turn are copied before those that count.
  explicit constexpr CopyTrial(std::uint64_t settling_bytes) : settling_bytes_(settling_bytes) {}

  /// The way of the next part, while is_over() is false.
  [[nodiscard]] CopyHint way() const;
  /// Reports that the part was copied that way, in so many ns.
  void took(std::uint64_t bytes, std::uint64_t ns);
  /// Discards the time of the part: pages were touched for the first time, or another thread ran.
  /// The next parts use memcpy until one is undisturbed, so that no way is used for long without
  /// being measured.
  void was_disturbed() { paused_ = true; }

  [[nodiscard]] bool is_over() const { return turn_ == kTurns; }
  [[nodiscard]] const CopyFigures& figures() const { return figures_; }

  /// A sample is the time of so many bytes.
  static constexpr std::uint64_t kSampleBytes = std::uint64_t{1} << 20;
  static constexpr std::size_t kTurnSamples = 8;

 private:
  static constexpr std::size_t kTurns = kCopyRounds * kCopyHints.size();
  [[nodiscard]] CopyHint way_of_turn() const { return kCopyHints[turn_ % kCopyHints.size()]; }
  void end_turn();

  std::uint64_t settling_bytes_;
  std::size_t turn_ = 0;
  bool paused_ = false;
  std::uint64_t settled_bytes_ = 0;  // of this turn
  std::uint64_t sample_bytes_ = 0;
  std::uint64_t sample_ns_ = 0;
  std::size_t sample_count_ = 0;
  std::array<double, kTurnSamples> samples_{};  // [ns for a byte]
  CopyFigures figures_;
};

}  // namespace tendon::v0::detail
