// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#include "memory/slot_pool.hpp"

namespace tendon::v0::detail {

/// What a link has counted since it exists, and what it holds now.
struct LinkStats {
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t dropped_messages = 0;  ///< for pipes that were gone
  std::uint64_t doorbells = 0;         ///< times the peer had to be woken
  std::uint64_t dropped_returns = 0;   ///< shm: of slots that the peer had no place to get back
  std::uint64_t held_bytes = 0;        ///< private memory here of messages that were not taken
  std::uint64_t most_held_bytes = 0;   ///< and the most there ever was, or a little more
  std::uint64_t kept_bytes = 0;        ///< what its channels keep beside messages: schemas
  std::uint64_t untaken_bytes = 0;     ///< tcp: sent in frames, and not taken as far as was heard
  std::uint64_t holds = 0;             ///< shm: the peer's, of the publish pool, quarantined or not
  std::uint64_t view_count = 0;        ///< shm: slots of the peer that were lent to the user here
  std::uint64_t renewals = 0;          ///< of its session, over TLS
  std::uint64_t refused_renewals = 0;  ///< a peer was, or took this end for, another one
  std::chrono::nanoseconds silence{};  ///< how long the peer gave no sign of life, as of a tick
  SlotPoolStats slots;                 ///< of the memory this side lends
};

}  // namespace tendon::v0::detail
