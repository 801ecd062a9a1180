// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <tendon/core/mutex.hpp>

#include "runtime/link_table.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// The threads of a Context that sleep in its epoll, as its peers see them: a peer rings only where
/// a thread sleeps, and only for what the sleep was announced for.
///
/// Owns:    a counter.
/// Threads: thread-safe. Its lock is the last: nothing but Link::announce_...() is called under it.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a store to shared memory for each link.
class Sleepers {
 public:
  /// Before the last look at what there is to do. The peers of these links ring from now on.
  void announce(const LinkList& links);
  /// The last one to wake up tells the peers.
  void retract(const LinkList& links);
  /// For a link that is new, or on which something more is waited for: no thread that sleeps
  /// already has asked its peer to ring for that.
  void announce_again(Link& link);
  /// In one order with announce(): a thread that adds work looks here afterwards.
  [[nodiscard]] bool any() const noexcept { return count_.load() != 0; }

  // With Progress::manual the program sleeps itself.
  void arm(const LinkList& links);
  void disarm(const LinkList& links);

 private:
  Mutex mutex_;
  std::atomic<std::uint32_t> count_{0};  // changed under the lock
};

}  // namespace tendon::v0::detail
