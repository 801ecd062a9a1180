// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/group/group.hpp>
#include <utility>
#include <vector>

#include "group/channel.hpp"

namespace tendon::v0::detail {

/// Messages from member to member that nobody has taken yet, in order of arrival.
///
/// Owns:    the messages' memory.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a lock; a search through what waits.
class MessageBox {
 public:
  struct Entry {
    std::uint32_t place = 0;   ///< of the sender
    std::uint64_t number = 0;  ///< in order of arrival
    InboundMessage inbound;    ///< without a channel: credited before it was put back
  };
  void put(std::uint32_t place, InboundMessage&& inbound);
  /// One that was taken, to where it was.
  void put_back(Entry&& entry);
  /// Nobody takes what is in it, or still comes: its senders are not to wait for that.
  void close();
  /// Forgets what came from there.
  void drop(std::uint32_t place) {
    const Lock lock(mutex_);
    std::erase_if(entries_, [place](const Entry& entry) { return entry.place == place; });
  }
  /// The first of `from` (by place; nullopt: anybody) with this tag that `accepts` likes; an Error
  /// of `accepts` leaves it there.
  template <class F>
  [[nodiscard]] Result<std::optional<Entry>> take(std::optional<std::uint32_t> place,
                                                  std::optional<std::uint32_t> tag, F accepts) {
    const Lock lock(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (place && entry->place != *place) continue;
      if (tag && entry->inbound.envelope.tag != *tag) continue;
      TENDON_CHECK(accepts(*entry));
      std::optional<Entry> taken(std::move(*entry));
      entries_.erase(entry);
      return taken;
    }
    return std::optional<Entry>();
  }

 private:
  Mutex mutex_;
  bool closed_ TENDON_GUARDED_BY(mutex_) = false;
  std::uint64_t arrived_ TENDON_GUARDED_BY(mutex_) = 0;
  std::deque<Entry> entries_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
