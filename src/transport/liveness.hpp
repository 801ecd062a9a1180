// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <tendon/session/limits.hpp>
#include <utility>

namespace tendon::v0::detail {

/// How long a peer has been silent, and whether this process ran meanwhile to hear it. It reads no
/// clock: time passes by tick().
///
/// Threads: under one lock, but for heard() and last_silence().
class Liveness {
 public:
  using Clock = std::chrono::steady_clock;
  struct Terms {
    std::chrono::milliseconds lease{3000};  ///< silence after which the peer is lost
    bool expects = true;  ///< false: the peer progresses manually, its silence means nothing
    bool gives = true;    ///< false: this process does, its silence means nothing there
  };
  Liveness(const Terms& terms, Clock::time_point now)
      : terms_(terms), last_heard_(now), last_tick_(now) {}

  [[nodiscard]] const Terms& terms() const noexcept { return terms_; }
  /// Something came. From any thread; it counts at the next time that is asked for.
  void heard() noexcept { heard_.store(true, std::memory_order_relaxed); }
  /// Time goes on: called a few times a second, before what came is taken in.
  void tick(Clock::time_point now) { last_gap_ = now - std::exchange(last_tick_, now); }
  /// As of the last tick.
  [[nodiscard]] Clock::duration silence() {
    if (heard_.exchange(false, std::memory_order_relaxed)) last_heard_ = last_tick_;
    const Clock::duration silence = last_tick_ - last_heard_;
    told_.store(silence.count(), std::memory_order_relaxed);
    return silence;
  }
  /// What silence() returned last. From any thread.
  [[nodiscard]] Clock::duration last_silence() const noexcept {
    return Clock::duration(told_.load(std::memory_order_relaxed));
  }
  /// The silence is this side's doing: it does not read.
  void excuse() { last_heard_ = last_tick_; }

  [[nodiscard]] bool is_suspect(Clock::duration silence) const {
    return terms_.expects && silence >= std::min<Clock::duration>(kSuspectAfter, terms_.lease);
  }
  [[nodiscard]] bool is_lost(Clock::duration silence) const {
    return terms_.expects && silence >= terms_.lease;
  }
  /// How long this process gave no signs of life itself, if the peer may have taken it for lost.
  [[nodiscard]] Clock::duration own_absence(Clock::time_point now) const {
    const Clock::duration away = std::max(now - last_tick_, last_gap_);
    return terms_.gives && away >= kSuspectAfter ? away : Clock::duration::zero();
  }

 private:
  const Terms terms_;
  // Time is read in tick() only; elsewhere it is enough to note that something came since.
  std::atomic<bool> heard_{false};
  std::atomic<Clock::duration::rep> told_{0};
  Clock::time_point last_heard_;
  Clock::time_point last_tick_;
  Clock::duration last_gap_{0};  // between the last two ticks
};

}  // namespace tendon::v0::detail
