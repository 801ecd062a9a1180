// SPDX-License-Identifier: Apache-2.0
// The messages by which members agree on the next epoch, and the words for it.
#pragma once

#include <bitset>
#include <compare>
#include <cstdint>
#include <optional>

#include "group/membership/group_place.hpp"

namespace tendon::v0::detail {

/// The most places of a group. They are fixed when it is made; a member has one of them.
inline constexpr std::size_t kMaxPlaces = 256;
using MemberMask = std::bitset<kMaxPlaces>;

/// A group at one moment. Epochs count up; nothing of one is applied in another.
struct View {
  std::uint64_t epoch = 0;
  MemberMask members;
  friend bool operator==(const View&, const View&) = default;
};

/// The reason for leaving a member out of the next epoch.
enum class Absence : std::uint8_t {
  proved,   ///< the kernel says that the process is dead
  assumed,  ///< its lease has lapsed: it may live, and think the same of us
};

/// An attempt to decide an epoch; a later one has the higher ballot.
struct Ballot {
  std::uint64_t round = 0;
  GroupPlace place;  ///< of the member that leads it
  friend auto operator<=>(const Ballot&, const Ballot&) = default;
};

/// A message of the agreement. `epoch` is that of the sender's view, for all kinds.
struct AgreementMessage {
  enum class Kind : std::uint8_t {
    absent,   ///< all that the sender takes to be absent: `mask`, of which `proved` are dead
    prepare,  ///< follow `ballot` and none before, and say what you accepted so far
    promise,  ///< `accepted`, when there is one, is what the sender accepted before
    propose,  ///< `mask` are to be the members of the next epoch
    accept,   ///< of the proposal of `ballot`
    refuse,   ///< the sender follows a later ballot, this one; or, with a `mask` of the sender: it
              ///< is no member of `epoch`, an earlier process was
    decided,  ///< the sender is in `epoch`, with the members `mask`
  };
  struct Accepted {
    Ballot ballot;
    MemberMask mask;
    friend bool operator==(const Accepted&, const Accepted&) = default;
  };
  Kind kind = Kind::absent;
  std::uint64_t epoch = 0;
  Ballot ballot;
  MemberMask mask;
  MemberMask proved;    ///< of a report
  MemberMask admitted;  ///< of a proposal: those in `mask` that are no members yet
  std::optional<Accepted> accepted;
};

}  // namespace tendon::v0::detail
