// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <tendon/core/mutex.hpp>

#include "runtime/link_table.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// The threads of a Context that sleep in its epoll. A peer rings only while a thread sleeps, and
/// only for the events that were announced with the sleep.
///
/// Owns:    a counter.
/// Threads: thread-safe. Its lock is taken last: under it only Link::announce_...() is called.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a store to shared memory for each link.
class Sleepers {
 public:
  /// Called before the last look for work. The peers of these links ring from now on.
  void announce(const LinkList& links);
  /// Called after waking; the last thread to wake tells the peers.
  void retract(const LinkList& links);
  /// For a new link, or one on which a thread now waits for more: no thread that sleeps already has
  /// asked its peer to ring for that.
  void announce_again(Link& link);
  /// Ordered with announce(): a thread that adds work checks this afterwards.
  [[nodiscard]] bool any() const noexcept { return count_.load() != 0; }

  // With Progress::manual the program sleeps itself.
  void arm(const LinkList& links);
  void disarm(const LinkList& links);

 private:
  Mutex mutex_;
  std::atomic<std::uint32_t> count_{0};  // changed under the lock
};

}  // namespace tendon::v0::detail
