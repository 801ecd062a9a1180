// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/error.hpp>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "group/boards/board.hpp"
#include "group/membership/member_channel.hpp"
#include "group/membership/numbered.hpp"
#include "group/operands/fingerprint.hpp"
#include "group/scripts/script.hpp"

namespace tendon::v0::detail {

/// A member's word that it is ready for an epoch.
struct Ready {
  std::uint64_t number = 0;  ///< of the epoch; 0: no word yet
  std::uint32_t board = 0;   ///< its segment, 0: none
  std::uint64_t issued = 0;
  std::uint64_t completed = 0;  ///< of the numbers issued; kNewHere: it replaces another process
  static constexpr std::uint64_t kNewHere = ~std::uint64_t{0};
};

/// A group between two changes of its members.
struct Epoch {
  std::uint64_t view = 0;                           ///< the agreement's number
  std::uint32_t attempt = 0;                        ///< how often the same members have begun anew
  ByRank<GroupPlace> places;                        ///< of the members
  GroupRank self;                                   ///< this member's
  ByRank<std::shared_ptr<MemberChannel>> channels;  ///< null for this member
  ByRank<std::string> names;                        ///< "rank 3 (vision, host a, pid 12)"
  Hosts hosts;                                      ///< by the names in their hellos
  std::unique_ptr<Board> board;                     ///< when all are on this host
  std::uint64_t board_round = 1;                    ///< the next
  CallHistory history;                              ///< guarded by the call queue's lock
  ByRank<Ready> ready;                              ///< for this epoch
  std::vector<GroupRank> refused_boards;  ///< members whose board does not belong to this epoch

  /// Steps of collectives that have arrived, by their sender.
  Mutex inbox_mutex;
  ByRank<std::deque<InboundMessage>> inbox TENDON_GUARDED_BY(inbox_mutex);

  /// Calls of recv_from_stage() in it.
  std::atomic<std::uint32_t> stage_receives{0};

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(places.size()); }
  [[nodiscard]] auto ranks() const { return places.numbers(); }
  /// nullopt: no member of this epoch has that place.
  [[nodiscard]] std::optional<GroupRank> rank_at(GroupPlace place) const {
    return places.find(place);
  }
  /// True if that is the channel to the member at `place`.
  [[nodiscard]] bool has(GroupPlace place, const MemberChannel& channel) const {
    const auto rank = rank_at(place);
    return rank && channels[*rank].get() == &channel;
  }
  /// The number in envelopes.
  [[nodiscard]] std::uint64_t number() const { return view << kAttemptBits | attempt; }
  static std::uint64_t view_of(std::uint64_t number) { return number >> kAttemptBits; }
  static std::uint32_t attempt_of(std::uint64_t number) {
    return static_cast<std::uint32_t>(number & ((std::uint64_t{1} << kAttemptBits) - 1));
  }
  static constexpr unsigned kAttemptBits = 32;
};

/// Wakes the members that wait for this member's rounds.
void ring_members(const Epoch& epoch);
/// Returns to the links what taken steps held. The caller holds no lock.
void settle_steps(const Epoch& epoch);
/// "rank 1 (…) called all_reduce #5 (sum of f32, 4096 bytes), rank 0 (…) called barrier #5".
[[nodiscard]] Error mismatch_error(const Epoch& epoch, const Fingerprint& mine, GroupRank member,
                                   const Fingerprint& theirs);
/// The error of a call that needs a member which has left or was lost.
[[nodiscard]] Error error_of_gone(const Epoch& epoch, GroupRank rank, Error why);
/// True if all has arrived that this member, whose loss is known, sent before.
[[nodiscard]] bool all_arrived_from(const Epoch& epoch, GroupRank rank);

}  // namespace tendon::v0::detail
