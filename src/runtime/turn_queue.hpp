// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <tendon/core/mutex.hpp>

namespace tendon::v0::detail {

/// Slow work that may wait, such as the handshake of a stranger. It runs in order of arrival, for a
/// limited time in each turn of the engine. Links are served between two turns.
///
/// Owns:    the numbers of the waiting entries.
/// Threads: thread-safe. Several threads may have a turn at once, each with its own time.
/// Errors:  none.
/// Blocks:  never; it works without its lock.
/// Cost:    a flag, while nothing waits.
class TurnQueue {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kMostTime{2};

  /// Adds an entry after those that wait already.
  void add(std::uint64_t id) TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    waiting_.push_back(id);
    any_.store(true, std::memory_order_release);
  }

  /// Runs a turn: calls `work` with the waiting entries in order. It stops before an entry that
  /// would end beyond kMostTime if it took as long as the longest of this turn. The first entry
  /// always runs. True: some are left.
  template <class Now, class Work>
  bool run(Now now, Work work) TENDON_EXCLUDES(mutex_) {
    if (!any_.load(std::memory_order_acquire)) return false;
    const Time begun = now();
    Time before = begun;
    Time::duration longest{};
    while (before - begun + longest <= kMostTime) {
      const auto id = take();
      if (!id) return false;
      work(*id);
      const Time after = now();
      longest = std::max(longest, after - before);
      before = after;
    }
    return any_.load(std::memory_order_acquire);
  }

 private:
  std::optional<std::uint64_t> take() TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    if (waiting_.empty()) return std::nullopt;
    const std::uint64_t id = waiting_.front();
    waiting_.pop_front();
    any_.store(!waiting_.empty(), std::memory_order_release);
    return id;
  }

  Mutex mutex_;
  std::deque<std::uint64_t> waiting_ TENDON_GUARDED_BY(mutex_);
  std::atomic<bool> any_{false};
};

}  // namespace tendon::v0::detail
