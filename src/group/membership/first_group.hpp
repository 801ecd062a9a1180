// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "group/membership/agreement_message.hpp"

namespace tendon::v0::detail {

/// The group that a join makes: a new one, or an earlier one if its rank 0 died and its members
/// connect to the process that takes that place.
///
/// Owns:    the id of the group.
/// Threads: none; its owner has a lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    nothing.
class FirstGroup {
 public:
  /// Sets the name that rank 0 has for its group if no process of an earlier one connects.
  void begin(std::uint64_t own) { id_ = own_ = own; }
  /// Notes the group that rank 0 has named; for the others.
  void learn(std::uint64_t id) { id_ = id; }
  /// The group's id; 0: not known yet.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }

  /// True if a member of `group` (0: of none) may join those that have reached rank 0.
  [[nodiscard]] bool admits(std::uint64_t group) const {
    return group == 0 || group == id_ || survivors_.none();
  }
  /// Notes an arrival, in the place of an earlier one. With the last survivor their group ends.
  void come(std::uint32_t place, std::uint64_t group) {
    const bool was_survivor = survivors_[place];
    survivors_.set(place, group != 0);
    if (group != 0)
      id_ = group;
    else if (was_survivor && survivors_.none())
      id_ = own_;
  }
  /// The members that arrived from the earlier group.
  [[nodiscard]] const MemberMask& survivors() const noexcept { return survivors_; }

 private:
  std::uint64_t own_ = 0;
  std::uint64_t id_ = 0;
  MemberMask survivors_;
};

}  // namespace tendon::v0::detail
