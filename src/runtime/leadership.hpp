// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>

#include "runtime/event_loop.hpp"
#include "runtime/life.hpp"

namespace tendon::v0::detail {

/// Decides which thread sleeps in the epoll of a Context. One waiting caller leads and the others
/// follow: they sleep until something moved or the leader leaves. The service thread stands aside
/// while callers serve the links, and sleeps in the epoll when none does.
///
/// Owns:    a lock and two conditions.
/// Threads: thread-safe. Under its lock it rings the doorbell of the EventLoop, which takes none.
/// Errors:  none.
/// Blocks:  enter(), park().
/// Cost:    a lock for each change.
class Leadership {
 public:
  /// While callers are busy, the service thread serves links without a caller this often.
  static constexpr std::chrono::milliseconds kShortestPark{1};
  static constexpr std::chrono::milliseconds kLongestPark{4};

  Leadership(EventLoop& loop, const Life& life) : loop_(loop), life_(life) {}

  /// Changes whenever something moved; a thread that sleeps passes the count that it has seen.
  [[nodiscard]] std::uint64_t progress_count() const noexcept { return progress_count_.load(); }

  // Callers
  /// True: this thread leads, until leave(). False: the caller looks again, because something moved
  /// since `seen`, the deadline has passed, or the leader has left.
  [[nodiscard]] bool enter(std::uint64_t seen, Deadline deadline);
  void leave();
  /// Called by the leader before each sleep.
  void note_round() noexcept { round_count_.fetch_add(1, std::memory_order_relaxed); }
  /// Called by the leader: the ring it took may have been for the service thread, for a callback.
  void note_ring_taken() noexcept { ring_taken_ = true; }
  /// Called by the leader before it sleeps again. One ring wakes one thread, so if the service
  /// thread sleeps in the same epoll, the leader rings and waits until that thread has left it.
  void pass_ring_on(Deadline deadline);
  /// Called by the leader when something moved.
  void wake_followers();
  [[nodiscard]] bool caller_leads() const noexcept { return caller_leads_.load(); }

  // Other threads
  /// Something moved: every waiting thread looks again.
  void wake_others();
  void wake_service();
  /// The Context was closed: every thread looks again.
  void wake_all();

  // The service thread
  /// Stands aside for `time`, or until wanted(). After the longest time without a round of the
  /// leader, it stands aside as long as the leader leads.
  template <class F>
  void park(std::chrono::milliseconds time, F wanted) {
    const Lock lock(mutex_);
    const std::uint64_t rounds = round_count_.load();
    const Deadline parked(time);
    while (!wanted() && service_wake_.wait_until(mutex_, parked)) {
    }
    if (!caller_leads_ || round_count_.load() != rounds || time != kLongestPark) return;
    service_parked_long_ = true;
    while (!wanted() && caller_leads_) service_wake_.wait(mutex_);
    service_parked_long_ = false;
  }
  /// Called before the service thread looks for work: see pass_ring_on().
  void service_enters_epoll() noexcept { service_in_epoll_ = true; }
  void service_leaves_epoll();

 private:
  void count_progress() TENDON_REQUIRES(mutex_);

  EventLoop& loop_;
  const Life& life_;
  Mutex mutex_;
  CondVar follower_wake_;
  CondVar service_wake_;
  CondVar service_left_;
  std::atomic<bool> caller_leads_{false};  // set under the lock; without it, a hint
  std::uint32_t follower_count_ TENDON_GUARDED_BY(mutex_) = 0;
  bool service_parked_long_ TENDON_GUARDED_BY(mutex_) = false;
  std::atomic<bool> service_in_epoll_{false};
  std::atomic<bool> ring_taken_{false};
  std::atomic<std::uint64_t> progress_count_{0};
  std::atomic<std::uint64_t> round_count_{0};
};

}  // namespace tendon::v0::detail
