// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/group/group.hpp>
#include <utility>
#include <vector>

#include "group/membership/group_place.hpp"
#include "group/membership/member_channel.hpp"

namespace tendon::v0::detail {

/// Messages between members that were not taken yet, in order of arrival, and the receives that
/// wait for one, in the order of their calls.
///
/// A message is matched as soon as it and a receive for it are there. Receives choose in their
/// order, each the first message that is left for it. So a receive never takes a message for which
/// an earlier one waits, whichever thread looks first (MPI 4.1, section 3.5, "Order").
///
/// Owns:    the messages' memory; not the receives.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a lock, but none for a look without a match; a search among the waiting ones.
///          Withdrawing a matched receive, and taking a message out of turn, matches anew: receives
///          times messages.
class MessageBox {
 public:
  struct Entry {
    GroupPlace place;          ///< of the sender
    std::uint64_t number = 0;  ///< in order of arrival, from 1
    InboundMessage inbound;    ///< without a channel: credited before it was put back
  };
  /// A receive's request. It stays at its address from post() to withdraw().
  struct Receive {
    std::optional<GroupPlace> place;   ///< of the sender; nullopt: anybody's
    std::optional<std::uint32_t> tag;  ///< nullopt: any
    /// The number of its own message; 0: none yet. A glance without the lock may be old.
    std::atomic<std::uint64_t> match{0};
  };

  void put(GroupPlace place, InboundMessage&& inbound);
  /// Puts a taken message back to its place.
  void put_back(Entry&& entry);
  /// Closes the box: nobody takes present or later messages, and their senders must not wait for
  /// that.
  void close();
  /// Drops the messages of that member.
  void drop(GroupPlace place);

  /// Adds a receive after all earlier ones.
  void post(Receive& receive);
  /// Withdraws the receive. True: it had a match, which another receive may have now, so sleepers
  /// must look again.
  [[nodiscard]] bool withdraw(Receive& receive);
  /// Takes the receive's message if `accepts` agrees; nullopt: none yet. With a message the receive
  /// has had its turn. An Error of `accepts` leaves the message and the receive as they are.
  template <class F>
  [[nodiscard]] Result<std::optional<Entry>> take(Receive& receive, F accepts) {
    if (receive.match == 0) return std::optional<Entry>();
    const Lock lock(mutex_);
    if (receive.match == 0) return std::optional<Entry>();
    const auto entry = std::ranges::lower_bound(entries_, receive.match.load(), {}, &Entry::number);
    TENDON_CHECK(accepts(*entry));
    std::optional<Entry> taken(std::move(*entry));
    entries_.erase(entry);
    std::erase(receives_, &receive);
    receive.match = 0;
    return taken;
  }

 private:
  [[nodiscard]] bool is_free(const Entry& entry) const TENDON_REQUIRES(mutex_);
  void match(Receive& receive) TENDON_REQUIRES(mutex_);
  void match_anew() TENDON_REQUIRES(mutex_);

  Mutex mutex_;
  bool closed_ TENDON_GUARDED_BY(mutex_) = false;
  std::uint64_t arrived_ TENDON_GUARDED_BY(mutex_) = 0;
  std::deque<Entry> entries_ TENDON_GUARDED_BY(mutex_);
  std::vector<Receive*> receives_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
