// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <tendon/core/error.hpp>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "group/board.hpp"
#include "group/channel.hpp"
#include "group/fingerprint.hpp"
#include "group/script.hpp"

namespace tendon::v0::detail {

/// What a member says when it is ready for an epoch.
struct Ready {
  std::uint64_t number = 0;  ///< of the epoch; 0: nothing said
  std::uint32_t board = 0;   ///< its segment, 0: none
  std::uint64_t issued = 0;
  std::uint64_t completed = 0;  ///< of the numbers issued; kNewHere: it has come for another
  static constexpr std::uint64_t kNewHere = ~std::uint64_t{0};
};

/// A group from one membership change to the next.
struct Epoch {
  std::uint64_t view = 0;                          ///< the agreement's number
  std::uint32_t attempt = 0;                       ///< times that the same members have begun anew
  std::vector<std::uint32_t> places;               ///< of the members, by rank
  std::uint32_t self = 0;                          ///< this member's rank
  std::vector<std::shared_ptr<Channel>> channels;  ///< by rank; null for this member
  std::vector<std::string> names;                  ///< by rank: "rank 3 (vision, host a, pid 12)"
  Hosts hosts;                                     ///< by the names that they gave in their hellos
  std::unique_ptr<Board> board;                    ///< when all are on this host
  std::uint64_t board_round = 1;                   ///< the next
  CallHistory history;                             ///< for who has the lane
  std::vector<Ready> ready;                        ///< for this epoch, by rank
  std::vector<std::uint32_t> refused_boards;       ///< ranks whose board is none of this epoch

  /// Steps of collectives that have arrived, by rank of their sender.
  Mutex inbox_mutex;
  std::vector<std::deque<InboundMessage>> inbox TENDON_GUARDED_BY(inbox_mutex);

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(places.size()); }
  /// In envelopes.
  [[nodiscard]] std::uint64_t number() const { return view << kAttemptBits | attempt; }
  static std::uint64_t view_of(std::uint64_t number) { return number >> kAttemptBits; }
  static std::uint32_t attempt_of(std::uint64_t number) {
    return static_cast<std::uint32_t>(number & ((std::uint64_t{1} << kAttemptBits) - 1));
  }
  static constexpr unsigned kAttemptBits = 32;
};

/// Wakes whoever waits for this member's rounds.
void ring_members(const Epoch& epoch);
/// "rank 1 (…) called all_reduce #5 (sum of f32, 4096 bytes), rank 0 (…) called barrier #5".
[[nodiscard]] Error mismatch_error(const Epoch& epoch, const Fingerprint& mine,
                                   std::uint32_t member, const Fingerprint& theirs);
/// What a call gets that needs a member which has gone, in order or not.
[[nodiscard]] Error error_of_gone(const Epoch& epoch, std::uint32_t rank, Error why);
/// Of a member whose loss is known: has all that it sent before arrived?
[[nodiscard]] bool all_arrived_from(const Epoch& epoch, std::uint32_t rank);

}  // namespace tendon::v0::detail
